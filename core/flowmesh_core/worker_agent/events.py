"""What can happen to the worker agent. Events are immutable facts; the shell makes them.

The shell is the code around the machine that does I/O: ``flowmesh_worker.agent`` in a worker,
``flowmesh_sim.workers`` in the simulator.
"""

from collections.abc import Mapping

import msgspec

from flowmesh_core.protocol.messages import Checkpoint, Desired, FailureReport
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest

TimerKey = tuple[str, str]
"""What a timer is for, and of which attempt or preload."""


class Connected(msgspec.Struct, frozen=True, gc=False):
    """The control plane has welcomed this worker."""


class Disconnected(msgspec.Struct, frozen=True, gc=False):
    """The connection is gone; the shell opens another."""


class DesiredReceived(msgspec.Struct, frozen=True, gc=False):
    """The control plane says what this worker should do from now on."""

    desired: Desired


class StopRequested(msgspec.Struct, frozen=True, gc=False):
    """The process was asked to end. A second time, it hands everything back at once."""


class TimerFired(msgspec.Struct, frozen=True, gc=False):
    """The moment of a ``SetTimer`` has come."""

    timer: TimerKey


class InputsReady(msgspec.Struct, frozen=True, gc=False):
    """All inputs of an attempt are on this machine."""

    attempt_id: str


class InputsFailed(msgspec.Struct, frozen=True, gc=False):
    """An input cannot be had, or a check before the run failed."""

    attempt_id: str
    failure: FailureReport


class CheckpointFetched(msgspec.Struct, frozen=True, gc=False):
    """The answer to ``FetchCheckpoint``.

    Attributes:
        unusable: reported to the control plane, where the attempt must begin at the start.
    """

    attempt_id: str
    unusable: Checkpoint | None = None


class CheckpointStored(msgspec.Struct, frozen=True, gc=False):
    """A checkpoint that an attempt wrote is in the store."""

    checkpoint: Checkpoint


class CheckpointsFlushed(msgspec.Struct, frozen=True, gc=False):
    """The answer to ``FlushCheckpoints``: none of the attempt's is under way any more."""

    attempt_id: str


class ComponentsChanged(msgspec.Struct, frozen=True, gc=False):
    """Models or adapters have come to the local disk or have left it.

    Attributes:
        local: all that are there now.
    """

    local: frozenset[Digest]


class ComponentFetched(msgspec.Struct, frozen=True, gc=False):
    """The answer to ``FetchComponent``: it stays on the disk until ``ReleaseComponents``."""

    signature: Digest
    port: str


class ComponentFailed(msgspec.Struct, frozen=True, gc=False):
    """The other answer to ``FetchComponent``."""

    signature: Digest
    failure: FailureReport


class OutputsStored(msgspec.Struct, frozen=True, gc=False):
    """The answer to ``StoreOutputs``.

    Attributes:
        outputs: artifacts by port.
        inline: contents of small blobs, which travel in the report.
    """

    attempt_id: str
    outputs: Mapping[str, Artifact]
    inline: Mapping[Digest, bytes] = {}


class OutputsFailed(msgspec.Struct, frozen=True, gc=False):
    """The other answer to ``StoreOutputs``."""

    attempt_id: str
    failure: FailureReport


class HostStarted(msgspec.Struct, frozen=True, gc=False):
    """The process of an instance runs; a standby host's did before."""

    instance_id: int


class HostLoaded(msgspec.Struct, frozen=True, gc=False):
    """The engine is loaded and takes attempts.

    Attributes:
        capacity: attempts that it runs at once.
        load_s: seconds that loading took.
        libraries: versions, for provenance.
    """

    instance_id: int
    capacity: int
    load_s: float
    libraries: Mapping[str, str] = {}


class HostLoadFailed(msgspec.Struct, frozen=True, gc=False):
    """The engine could not be loaded; the process ends by itself."""

    instance_id: int
    failure: FailureReport


class HostExited(msgspec.Struct, frozen=True, gc=False):
    """The process of an instance has ended, for whatever reason.

    Attributes:
        failure: what that means for its attempts, unless the machine knows better.
    """

    instance_id: int
    failure: FailureReport


class HostPrinted(msgspec.Struct, frozen=True, gc=False):
    """A host printed a line."""

    instance_id: int
    line: str


class HostSilent(msgspec.Struct, frozen=True, gc=False):
    """How many seconds ago a host last sent a heartbeat."""

    instance_id: int
    silent_s: float


class MemoryMeasured(msgspec.Struct, frozen=True, gc=False):
    """How much memory a host really uses."""

    instance_id: int
    used_mib: int


class AttemptProgressed(msgspec.Struct, frozen=True, gc=False):
    """How far a running attempt is.

    Attributes:
        units: work done so far, in the contract's unit.
        done: and ``total``, in ``unit``; total 0 is unknown.
    """

    instance_id: int
    attempt_id: str
    units: int
    done: float
    total: float
    unit: str


class AttemptUsage(msgspec.Struct, frozen=True, gc=False):
    """What the engine counted; see ``protocol.results.Usage``. ``run_s`` 0 is not measured."""

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
        outputs: artifacts by port, where all fit into the report; None where some must be stored.
        inline: the contents of those.
        libraries: as of ``HostLoaded``, where they have changed; None where they have not.
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
    | HostExited
    | HostPrinted
    | HostSilent
    | MemoryMeasured
    | AttemptProgressed
    | AttemptFinished
    | StandbyReady
    | StandbyExited
)
