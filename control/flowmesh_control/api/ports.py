"""What the handlers need of the leading control plane beyond its queries."""

from collections.abc import Mapping
from typing import Any, Protocol

from flowmesh_api.v1.runs import RunAccepted, RunStatus
from flowmesh_control.runs.admission import Submission
from flowmesh_core.protocol.results import Artifact


class RunReader(Protocol):
    """Knows runs and what they gave."""

    async def status(self, uid: str) -> RunStatus:
        """Returns a run's status, live or ended.

        Raises:
            NotFoundError: there is no such run.
        """
        ...

    async def outputs(self, uid: str) -> Mapping[str, tuple[Artifact, ...]]:
        """Returns the outputs of a run that has ended.

        Raises:
            NotFoundError: there is no such run, or it has not ended.
        """
        ...


class RunWriter(Protocol):
    """Changes runs, whether they wait or are under way."""

    async def submit(self, submission: Submission) -> RunAccepted:
        """Accepts a workflow, or finds the run that it already is.

        Raises:
            SpecError: everything that is wrong with it.
            InvalidReferenceError: it names content that the namespace may not read.
            StoreError: it could not be written; nothing was accepted.
        """
        ...

    async def amend(self, uid: str, changes: dict[str, Any]) -> None:
        """Changes the terms of a run under way.

        Raises:
            ConflictError: it waits for an engine.
        """
        ...

    async def cancel(self, uid: str, reason: str) -> None:
        """Stops a run that has not ended.

        Raises:
            StoreError: the wish could not be written; call it again.
        """
        ...


class WorkerDrain(Protocol):
    """Lets workers leave."""

    def drain(self, worker: str) -> bool:
        """Asks a worker to finish and leave; returns whether it is connected."""
        ...


class Epoch(Protocol):
    """The leadership of this control plane."""

    @property
    def number(self) -> int:
        """Counts leaderships of this store."""
        ...
