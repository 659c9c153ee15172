"""Events of the worker agent: immutable facts, posted by the shell.

The shell is the code around the machine that does I/O: ``flowmesh_worker.agent`` in a worker,
``flowmesh_sim.workers`` in the simulator.
"""

from collections.abc import Mapping

import msgspec

from flowmesh_core.protocol.messages import Checkpoint, Desired, FailureReport
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest

TimerKey = tuple[str, str]
"""The purpose of a timer, and the attempt, preload, signature or part of the drain it is for."""


class Connected(msgspec.Struct, frozen=True, gc=False):
    """The control plane has welcomed this worker."""


class Disconnected(msgspec.Struct, frozen=True, gc=False):
    """The connection is lost; the shell opens another."""


class DesiredReceived(msgspec.Struct, frozen=True, gc=False):
    """The control plane has sent a new desired state."""

    desired: Desired


class StopRequested(msgspec.Struct, frozen=True, gc=False):
    """The process was asked to end; the second request ends the grace period at once."""


class TimerFired(msgspec.Struct, frozen=True, gc=False):
    """The time of a ``SetTimer`` has come."""

    timer: TimerKey


class InputsReady(msgspec.Struct, frozen=True, gc=False):
    """All inputs of an attempt are on this machine."""

    attempt_id: str


class InputsFailed(msgspec.Struct, frozen=True, gc=False):
    """An input cannot be fetched, or a check before the run failed."""

    attempt_id: str
    failure: FailureReport


class CheckpointFetched(msgspec.Struct, frozen=True, gc=False):
    """The answer to ``FetchCheckpoint``.

    Attributes:
        unusable: the report of a checkpoint that cannot be used; the attempt then begins at the
            start.
    """

    attempt_id: str
    unusable: Checkpoint | None = None


class CheckpointStored(msgspec.Struct, frozen=True, gc=False):
    """A checkpoint of an attempt is in the store."""

    checkpoint: Checkpoint


class CheckpointsFlushed(msgspec.Struct, frozen=True, gc=False):
    """The answer to ``FlushCheckpoints``: the attempt's checkpoints are stored, or have failed."""

    attempt_id: str


class ComponentsChanged(msgspec.Struct, frozen=True, gc=False):
    """The models or adapters on the local disk have changed.

    Attributes:
        local: all that are on the disk now.
    """

    local: frozenset[Digest]


class ComponentFetched(msgspec.Struct, frozen=True, gc=False):
    """The answer to ``FetchComponent``: it stays on the disk until ``ReleaseComponents``."""

    signature: Digest
    port: str


class ComponentFailed(msgspec.Struct, frozen=True, gc=False):
    """The answer to ``FetchComponent`` when the component cannot be fetched."""

    signature: Digest
    failure: FailureReport


class OutputsStored(msgspec.Struct, frozen=True, gc=False):
    """The answer to ``StoreOutputs``.

    Attributes:
        outputs: artifacts by port.
        inline: contents of small blobs; they travel in the report.
    """

    attempt_id: str
    outputs: Mapping[str, Artifact]
    inline: Mapping[Digest, bytes] = {}


class OutputsFailed(msgspec.Struct, frozen=True, gc=False):
    """The answer to ``StoreOutputs`` when an output cannot be stored."""

    attempt_id: str
    failure: FailureReport


class HostStarted(msgspec.Struct, frozen=True, gc=False):
    """The process of an instance runs; that of a standby host ran before."""

    instance_id: int


class HostLoaded(msgspec.Struct, frozen=True, gc=False):
    """The engine is loaded and takes attempts.

    Attributes:
        capacity: attempts that the engine runs at once.
        load_s: seconds that loading took.
        libraries: versions, for provenance.
        asleep_mib: host memory that it takes while it is asleep; 0 if it cannot sleep.
    """

    instance_id: int
    capacity: int
    load_s: float
    libraries: Mapping[str, str] = {}
    asleep_mib: int = 0


class HostLoadFailed(msgspec.Struct, frozen=True, gc=False):
    """The engine could not be loaded; the process ends by itself."""

    instance_id: int
    failure: FailureReport


class HostAsleep(msgspec.Struct, frozen=True, gc=False):
    """The host of an instance has freed its device's memory, as ``SleepHost`` asked."""

    instance_id: int


class HostAwake(msgspec.Struct, frozen=True, gc=False):
    """The host of an instance takes attempts again, as ``WakeHost`` asked.

    Attributes:
        wake_s: seconds that it took.
    """

    instance_id: int
    wake_s: float


class HostSleepFailed(msgspec.Struct, frozen=True, gc=False):
    """A host could not fall asleep, or could not wake."""

    instance_id: int
    failure: FailureReport


class HostExited(msgspec.Struct, frozen=True, gc=False):
    """The process of an instance has ended.

    Attributes:
        failure: of its attempts, unless the agent has ended the host for another reason.
    """

    instance_id: int
    failure: FailureReport


class HostPrinted(msgspec.Struct, frozen=True, gc=False):
    """A host printed a line."""

    instance_id: int
    line: str


class HostSilent(msgspec.Struct, frozen=True, gc=False):
    """How long ago, in seconds, a host sent its last heartbeat."""

    instance_id: int
    silent_s: float


class MemoryMeasured(msgspec.Struct, frozen=True, gc=False):
    """The memory that a host uses, as measured."""

    instance_id: int
    used_mib: int


class AttemptProgressed(msgspec.Struct, frozen=True, gc=False):
    """How far a running attempt is.

    Attributes:
        units: work done so far, in the contract's unit.
        done: the same in ``unit``, as ``total``; a total of 0 is unknown.
    """

    instance_id: int
    attempt_id: str
    units: int
    done: float
    total: float
    unit: str


class AttemptUsage(msgspec.Struct, frozen=True, gc=False):
    """What the engine measured; see ``protocol.results.Usage``. ``run_s`` 0 is not measured."""

    run_s: float = 0.0
    units: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    joules: float = 0.0
    peak_memory_mib: int = 0


class AttemptFinished(msgspec.Struct, frozen=True, gc=False):
    """A host has ended an attempt.

    Attributes:
        failure: None after a success.
        keeps_files: whether its outputs are files of the host until ``ReleaseFiles``.
        outputs: artifacts by port if all fit into the report; None if some must be stored.
        inline: contents of the former.
        libraries: versions, if they have changed since ``HostLoaded``; else None.
    """

    instance_id: int
    attempt_id: str
    failure: FailureReport | None = None
    keeps_files: bool = False
    outputs: Mapping[str, Artifact] | None = None
    inline: Mapping[Digest, bytes] = {}
    usage: AttemptUsage = AttemptUsage()
    libraries: Mapping[str, str] | None = None


class StandbyReady(msgspec.Struct, frozen=True, gc=False):
    """A standby host has imported its libraries."""

    host_id: int


class StandbyExited(msgspec.Struct, frozen=True, gc=False):
    """A standby host has ended, or could not import its libraries."""

    host_id: int


class HubReady(msgspec.Struct, frozen=True, gc=False):
    """The hub that ``StartHub`` started takes replicas."""

    hub_id: int


class HubExited(msgspec.Struct, frozen=True, gc=False):
    """The hub has ended, or could not be started; its calls are lost."""

    hub_id: int
    reason: str


class CallsBusy(msgspec.Struct, frozen=True, gc=False):
    """How busy the calls of a replica keep its engine instance; posted when that changes.

    Attributes:
        calls: calls in it now.
        units: work that its calls have done so far in this instance, in the contract's unit.
        call_s: seconds that these calls took, from when they ran.
    """

    replica_id: str
    calls: int
    units: int = 0
    call_s: float = 0.0


Event = (
    Connected
    | Disconnected
    | DesiredReceived
    | StopRequested
    | TimerFired
    | InputsReady
    | InputsFailed
    | CheckpointFetched
    | CheckpointStored
    | CheckpointsFlushed
    | ComponentsChanged
    | ComponentFetched
    | ComponentFailed
    | OutputsStored
    | OutputsFailed
    | HostStarted
    | HostLoaded
    | HostLoadFailed
    | HostAsleep
    | HostAwake
    | HostSleepFailed
    | HostExited
    | HostPrinted
    | HostSilent
    | MemoryMeasured
    | AttemptProgressed
    | AttemptFinished
    | StandbyReady
    | StandbyExited
    | HubReady
    | HubExited
    | CallsBusy
)
