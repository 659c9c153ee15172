"""What the worker agent has its shell do. The shell does it in order and decides nothing."""

import msgspec

from flowmesh_core.protocol.messages import Assignment, FailureReport, PrewarmSpec
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent.events import TimerKey
from flowmesh_core.worker_agent.memory_reservations import Reservation


class FetchInputs(msgspec.Struct, frozen=True, gc=False):
    """Bring an attempt's inputs here and keep them until ``DropAttempt``.

    Answered by ``InputsReady`` or ``InputsFailed``.
    """

    assignment: Assignment


class FetchCheckpoint(msgspec.Struct, frozen=True, gc=False):
    """Bring the checkpoint here that an attempt begins at; answered by ``CheckpointFetched``."""

    attempt_id: str


class FlushCheckpoints(msgspec.Struct, frozen=True, gc=False):
    """Finish storing what the attempt handed over; answered by ``CheckpointsFlushed``."""

    attempt_id: str


class StoreOutputs(msgspec.Struct, frozen=True, gc=False):
    """Store the outputs of an attempt; answered by ``OutputsStored`` or ``OutputsFailed``."""

    attempt_id: str


class DropAttempt(msgspec.Struct, frozen=True, gc=False):
    """Stop whatever is under way for an attempt that has ended, and release its inputs.

    Attributes:
        failure: why it ended; None after a success.
    """

    assignment: Assignment
    failure: FailureReport | None


class StartHost(msgspec.Struct, frozen=True, gc=False):
    """Start a host and have it load; answered by ``HostStarted``, then ``HostLoaded``.

    Attributes:
        wanted: the attempt that it is started for, or the entry of the prewarm list.
        standby_id: the standby host to use; None starts a process.
    """

    instance_id: int
    wanted: Assignment | PrewarmSpec
    reservation: Reservation
    standby_id: int | None = None


class CloseHost(msgspec.Struct, frozen=True, gc=False):
    """Ask an idle host to end, and kill it after so long; answered by ``HostExited``."""

    instance_id: int
    within_s: float


class KillHost(msgspec.Struct, frozen=True, gc=False):
    """End a host and all that it started, at once; answered by ``HostExited``."""

    instance_id: int


class RunAttempt(msgspec.Struct, frozen=True, gc=False):
    """Have a host run an attempt; answered by ``AttemptFinished``."""

    instance_id: int
    attempt_id: str


class CancelAttempt(msgspec.Struct, frozen=True, gc=False):
    """Have a host stop an attempt; answered by ``AttemptFinished``."""

    instance_id: int
    attempt_id: str


class RequestCheckpoint(msgspec.Struct, frozen=True, gc=False):
    """Have a host write a checkpoint of an attempt, as far as its engine can, and end it."""

    instance_id: int
    attempt_id: str


class ReleaseFiles(msgspec.Struct, frozen=True, gc=False):
    """Let a host remove the files of an attempt."""

    instance_id: int
    attempt_id: str


class FetchComponent(msgspec.Struct, frozen=True, gc=False):
    """Bring a component here before work needs it, and keep it until ``ReleaseComponents``.

    Answered by ``ComponentFetched`` or ``ComponentFailed``.
    """

    signature: Digest
    port: str
    digest: Digest


class ReleaseComponents(msgspec.Struct, frozen=True, gc=False):
    """Stop fetching components for an entry of the prewarm list, and release those fetched."""

    signature: Digest


class PrewarmFailed(msgspec.Struct, frozen=True, gc=False):
    """Log that an entry of the prewarm list is given up."""

    spec: PrewarmSpec
    failure: FailureReport


class StartStandby(msgspec.Struct, frozen=True, gc=False):
    """Start a host that imports libraries; answered by ``StandbyReady`` or ``StandbyExited``."""

    host_id: int
    preload: str


class StopStandby(msgspec.Struct, frozen=True, gc=False):
    """Kill a standby host; nothing answers."""

    host_id: int


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    """Post ``TimerFired`` at a moment of the machine's clock; replaces one of the same key."""

    timer: TimerKey
    at_s: float


class ClearTimer(msgspec.Struct, frozen=True, gc=False):
    """Forget a timer."""

    timer: TimerKey


class SendReport(msgspec.Struct, frozen=True, gc=False):
    """Send the next ``Sync`` no later than this moment of the machine's clock."""

    at_s: float


class Leave(msgspec.Struct, frozen=True, gc=False):
    """Say goodbye and end the process: the worker is drained."""


Instruction = (
    FetchInputs
    | FetchCheckpoint
    | FlushCheckpoints
    | StoreOutputs
    | DropAttempt
    | StartHost
    | CloseHost
    | KillHost
    | RunAttempt
    | CancelAttempt
    | RequestCheckpoint
    | ReleaseFiles
    | FetchComponent
    | ReleaseComponents
    | PrewarmFailed
    | StartStandby
    | StopStandby
    | SetTimer
    | ClearTimer
    | SendReport
    | Leave
)
