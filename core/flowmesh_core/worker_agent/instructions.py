"""Instructions of the worker agent. The shell performs them in order and decides nothing."""

import msgspec

from flowmesh_core.protocol.messages import (
    Assignment,
    FailureReport,
    PrewarmSpec,
    RouterAddress,
    ServingReplica,
)
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent.events import TimerKey
from flowmesh_core.worker_agent.memory_reservations import Reservation


class FetchInputs(msgspec.Struct, frozen=True, gc=False):
    """Fetch an attempt's inputs and keep them until ``DropAttempt``.

    Answered by ``InputsReady`` or ``InputsFailed``.
    """

    assignment: Assignment


class FetchCheckpoint(msgspec.Struct, frozen=True, gc=False):
    """Fetch the checkpoint at which an attempt begins; answered by ``CheckpointFetched``."""

    attempt_id: str


class FlushCheckpoints(msgspec.Struct, frozen=True, gc=False):
    """Finish storing the attempt's checkpoints; answered by ``CheckpointsFlushed``."""

    attempt_id: str


class StoreOutputs(msgspec.Struct, frozen=True, gc=False):
    """Store the outputs of an attempt; answered by ``OutputsStored`` or ``OutputsFailed``."""

    attempt_id: str


class DropAttempt(msgspec.Struct, frozen=True, gc=False):
    """Stop fetching and storing for an attempt that has ended, and release its inputs.

    Attributes:
        failure: why it ended; None after a success.
    """

    assignment: Assignment
    failure: FailureReport | None


class StartHost(msgspec.Struct, frozen=True, gc=False):
    """Start a host and have it load; answered by ``HostStarted``, then ``HostLoaded``.

    Attributes:
        wanted: the attempt, or the entry of the prewarm list, that needs it.
        standby_id: the standby host to use; None starts a new process.
    """

    instance_id: int
    wanted: Assignment | PrewarmSpec
    reservation: Reservation
    standby_id: int | None = None


class CloseHost(msgspec.Struct, frozen=True, gc=False):
    """Ask an idle host to exit; kill it after ``within_s``. Answered by ``HostExited``."""

    instance_id: int
    within_s: float


class SleepHost(msgspec.Struct, frozen=True, gc=False):
    """Have an idle host free its device's memory and keep its process and its weights.

    Answered by ``HostAsleep`` or ``HostSleepFailed``.
    """

    instance_id: int


class WakeHost(msgspec.Struct, frozen=True, gc=False):
    """Have a host that is asleep take its memory back.

    Answered by ``HostAwake`` or ``HostSleepFailed``.
    """

    instance_id: int


class KillHost(msgspec.Struct, frozen=True, gc=False):
    """Kill a host and all processes that it started; answered by ``HostExited``."""

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
    """Have a host write a checkpoint of an attempt, if its engine can, and end it."""

    instance_id: int
    attempt_id: str


class ReleaseFiles(msgspec.Struct, frozen=True, gc=False):
    """Let a host remove the files of an attempt."""

    instance_id: int
    attempt_id: str


class FetchComponent(msgspec.Struct, frozen=True, gc=False):
    """Fetch a component ahead of work and keep it until ``ReleaseComponents``.

    Answered by ``ComponentFetched`` or ``ComponentFailed``.

    Attributes:
        read_scopes: where it may lie.
        token: that may read there, for the blob service.
    """

    signature: Digest
    port: str
    artifact: Artifact
    read_scopes: tuple[str, ...] = ()
    token: str = ""

    @property
    def digest(self) -> Digest:
        """The component's identity."""
        return self.artifact.digest


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
    """Kill a standby host; no event answers it."""

    host_id: int


class Forget(msgspec.Struct, frozen=True, gc=False):
    """Delete these blobs and components from the disk, those in use when they are released."""

    digests: tuple[Digest, ...]


class StartHub(msgspec.Struct, frozen=True, gc=False):
    """Start the hub, or have the one with this id connect to these routers instead.

    Answered by ``HubReady`` or ``HubExited``.
    """

    hub_id: int
    routers: tuple[RouterAddress, ...]


class StopHub(msgspec.Struct, frozen=True, gc=False):
    """End the hub; no event answers it."""

    hub_id: int


class PinInstance(msgspec.Struct, frozen=True, gc=False):
    """Have the host of an instance take calls for a replica, once it has loaded.

    The instance is not closed before ``UnpinInstance``.
    """

    instance_id: int
    replica: ServingReplica


class UnpinInstance(msgspec.Struct, frozen=True, gc=False):
    """Withdraw a replica from the hub: calls that are in it end, and no other enters.

    Reports of its calls (``CallsBusy``) go on until the last one has ended.
    """

    instance_id: int
    replica_id: str


class AdmitCalls(msgspec.Struct, frozen=True, gc=False):
    """Have the hub send calls of a replica to the host of its instance.

    Attributes:
        halvings: how often the calls that run at once are halved, since its host ran out of memory.
    """

    instance_id: int
    replica: ServingReplica
    halvings: int = 0


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    """Post ``TimerFired`` at a time of the agent's clock; replaces a timer of the same key."""

    timer: TimerKey
    at_s: float


class ClearTimer(msgspec.Struct, frozen=True, gc=False):
    """Cancel a timer, if it is set."""

    timer: TimerKey


class SendReport(msgspec.Struct, frozen=True, gc=False):
    """Send the next ``Sync`` no later than at this time of the agent's clock."""

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
    | SleepHost
    | WakeHost
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
    | Forget
    | StartHub
    | StopHub
    | PinInstance
    | UnpinInstance
    | AdmitCalls
    | SetTimer
    | ClearTimer
    | SendReport
    | Leave
)
