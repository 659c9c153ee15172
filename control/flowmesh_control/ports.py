"""What the loop needs from its neighbours, declared by the one who uses it."""

from collections.abc import Sequence
from typing import Protocol

from flowmesh_core.fleet.snapshot import Snapshot
from flowmesh_core.machine.commands import CheckBlobs, Command, LookUp, Publish
from flowmesh_core.machine.events import Event
from flowmesh_core.protocol.messages import Assignment, AttemptEnd, PrewarmSpec


class MachinePort(Protocol):
    """The run machine: events in, commands out, no I/O."""

    @property
    def wants_decision(self) -> bool:
        """Whether ready work or the fleet changed since the last snapshot."""
        ...

    def apply(self, event: Event, now_s: float) -> list[Command]:
        """Takes a fact in and says what is to be done about it."""
        ...

    def snapshot(self, now_s: float) -> Snapshot:
        """What the scheduler decides on; valid until the next event."""
        ...


class Executor(Protocol):
    """Does what the machine says."""

    def execute(self, commands: Sequence[Command]) -> None:
        """Starts the work; answers come back as events."""
        ...

    def flush(self) -> None:
        """Sends what was gathered; called once a turn of the loop."""
        ...

    @property
    def backlog(self) -> int:
        """How much of the work nobody has begun."""
        ...


class WorkerChannel(Protocol):
    """The way to the workers: what they should hold."""

    def assign(self, worker: str, assignment: Assignment) -> None:
        """The worker should hold this attempt."""
        ...

    def cancel(self, worker: str, attempt_id: str) -> None:
        """The worker should no longer hold this attempt."""
        ...

    def hold_open(self, worker: str, openings: tuple[PrewarmSpec, ...]) -> None:
        """All hosts that the worker should hold open ahead of work."""
        ...

    def acknowledge(self, worker: str, attempt_id: str) -> None:
        """The worker need not keep this report."""
        ...

    def keep(self, worker: str, attempts: tuple[str, ...]) -> None:
        """The answer to a worker's full state."""
        ...

    def report(self, worker: str, end: AttemptEnd) -> None:
        """Reports an attempt that ended before it reached the worker, in the worker's name."""
        ...

    def flush(self) -> None:
        """Sends what was gathered for each worker."""
        ...


class TaskOwners(Protocol):
    """Knows for whom store work is done."""

    def namespaces(self, command: Command) -> Sequence[str]:
        """Who wants it done, at least one; the empty one is the fabric itself."""
        ...

    def awaits(self, command: LookUp | CheckBlobs | Publish) -> bool:
        """Whether anybody still waits for the answer."""
        ...


class Finisher(Protocol):
    """Makes a run's end durable."""

    async def finish(self, uid: str) -> None:
        """Flushes its ledger, stores what its outputs refer to, writes ``final``.

        Raises:
            StoreUnavailableError: call it again.
        """
        ...


class SecretReader(Protocol):
    """Reads secrets under the rights of their owner."""

    async def read(self, namespace: str, names: tuple[str, ...]) -> dict[str, str]:
        """The values by name.

        Args:
            namespace: the run's.
            names: as plans carry them, for ``SecretLocation.parse``. The answer's keys are the bare
                names.

        Raises:
            FlowMeshError: one is not there or may not be read; the message names it, not its value.
        """
        ...
