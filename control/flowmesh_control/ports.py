"""Ports of the event loop and the command executor, declared where they are used."""

from collections.abc import Sequence
from typing import Protocol

from flowmesh_core.fleet.snapshot import Snapshot
from flowmesh_core.graph.conditions import ConditionQuery, ConditionVerdict
from flowmesh_core.machine.commands import CheckBlobs, Command, EvaluateCondition, LookUp, Publish
from flowmesh_core.machine.events import Event
from flowmesh_core.machine.model import Run
from flowmesh_core.protocol.messages import (
    Assignment,
    AttemptEnd,
    PrewarmSpec,
    RouterAddress,
    ServingReplica,
)
from flowmesh_core.spec.secrets import SecretValue


class MachinePort(Protocol):
    """The run machine: events in, commands out, no I/O."""

    @property
    def wants_decision(self) -> bool:
        """Whether ready work or the fleet changed since the last snapshot."""
        ...

    def apply(self, event: Event, now_s: float) -> list[Command]:
        """Applies an event and returns the commands that follow from it."""
        ...

    def snapshot(self, now_s: float) -> Snapshot:
        """Returns the snapshot for a scheduling cycle; valid until the next event."""
        ...


class Executor(Protocol):
    """Executes the machine's commands."""

    def execute(self, commands: Sequence[Command]) -> None:
        """Starts the commands; results come back as events."""
        ...

    def flush(self) -> None:
        """Sends buffered messages to workers; called once per pass of the loop."""
        ...

    @property
    def backlog(self) -> int:
        """The number of store tasks that have not started."""
        ...


class WorkerChannel(Protocol):
    """Sends workers changes of their desired state."""

    def assign(
        self, worker: str, assignment: Assignment, generation: int, read_scopes: tuple[str, ...]
    ) -> None:
        """Adds an attempt to the worker's desired state.

        Args:
            worker: its name.
            assignment: without a token.
            generation: of the result that the attempt would publish.
            read_scopes: where its inputs may lie.
        """
        ...

    def cancel(self, worker: str, attempt_id: str) -> None:
        """Removes an attempt from the worker's desired state."""
        ...

    def prewarm(self, worker: str, openings: tuple[PrewarmSpec, ...]) -> None:
        """Sets all engines that the worker should prewarm."""
        ...

    def serve(
        self,
        worker: str,
        replicas: tuple[ServingReplica, ...],
        routers: tuple[RouterAddress, ...],
    ) -> None:
        """Sets all replicas of services that the worker holds, and the routers of its hub."""
        ...

    def acknowledge(self, worker: str, attempt_id: str) -> None:
        """Acknowledges an attempt's end: the worker stops reporting it."""
        ...

    def confirm_attempts(self, worker: str, attempts: tuple[str, ...]) -> None:
        """Answers a worker's full state with the attempts that continue."""
        ...

    def drain(self, worker: str) -> bool:
        """Asks a worker to finish and leave; returns whether it is connected."""
        ...

    def report(self, worker: str, end: AttemptEnd) -> None:
        """Reports, on the worker's behalf, an attempt that ended before it was sent."""
        ...

    def flush(self) -> None:
        """Sends each worker its buffered changes."""
        ...


class TaskOwners(Protocol):
    """Says which tenants a store task is done for."""

    def namespaces(self, command: Command) -> Sequence[str]:
        """Returns the namespaces that need it, at least one; the empty one is the fabric's."""
        ...

    def awaits(self, command: LookUp | CheckBlobs | EvaluateCondition | Publish) -> bool:
        """Whether a run still waits for the answer."""
        ...


class ConditionEvaluator(Protocol):
    """Evaluates conditions."""

    async def evaluate(self, query: ConditionQuery) -> ConditionVerdict:
        """Returns the verdict; one with a failure where the condition cannot be evaluated.

        Raises:
            EvaluatorUnavailableError: not now; try again.
        """
        ...


class Finisher(Protocol):
    """Makes a run's end durable."""

    async def finish(self, uid: str) -> None:
        """Flushes its ledger, stores what its outputs refer to, writes ``final``.

        Raises:
            StoreUnavailableError: the store is unavailable or full; try again.
        """
        ...


class SecretReader(Protocol):
    """Reads secrets under the rights of their owner."""

    async def read(
        self, namespace: str, names: tuple[str, ...], engine: str
    ) -> dict[str, SecretValue]:
        """Returns the values by bare name.

        Args:
            namespace: the run's.
            names: as plans carry them, for ``SecretLocation.parse``.
            engine: the engine of the attempt that they are sent to.

        Raises:
            FlowMeshError: a secret does not exist, may not be read, or may not be sent to this
                engine; the message names the secret and never contains its value.
        """
        ...


class RunSampling(Protocol):
    """Has a share of a run's results made again and compared, before the run's end is durable."""

    async def draw(self, run: Run) -> None:
        """Starts an audit of the drawn results of a run.

        Raises:
            StoreUnavailableError, StoreFullError: try again.
        """
        ...

    async def concluded(self, run: Run) -> None:
        """Draws the consequences of an audit that was started so, whose report is written.

        Raises:
            StoreUnavailableError, StoreFullError: try again.
        """
        ...
