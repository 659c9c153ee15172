"""Ports of the HTTP handlers: what they need of the control plane beyond its queries."""

from collections.abc import Mapping
from typing import Any, Protocol

from flowmesh_api.v1.runs import RunAccepted, RunStatus
from flowmesh_control.runs.admission import Submission
from flowmesh_core.protocol.results import Artifact


class RunReader(Protocol):
    """Reads runs and their outputs."""

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

    async def output_scopes(self, uid: str) -> tuple[str, ...]:
        """Returns the scopes that have the outputs of a run that has ended.

        Raises:
            NotFoundError: there is no such run, or it has not ended.
        """
        ...


class RunWriter(Protocol):
    """Submits, amends and cancels runs."""

    async def submit(self, submission: Submission) -> RunAccepted:
        """Accepts a workflow, or returns the unfinished run of the same workflow.

        Raises:
            SpecError: everything that is wrong with it.
            InvalidReferenceError: it names content that the namespace may not read.
            StoreError: it could not be written; nothing was accepted.
        """
        ...

    async def amend(self, uid: str, changes: dict[str, Any]) -> None:
        """Changes the terms of a run under way.

        Raises:
            ConflictError: the run waits for an engine that is not installed.
        """
        ...

    async def cancel(self, uid: str, reason: str, submitter: str = "") -> None:
        """Cancels a run that has not ended; for a submitter only if no other one wants it.

        Raises:
            StoreError: the cancellation could not be written; try again.
        """
        ...


class WorkerDrain(Protocol):
    """Drains workers."""

    def drain(self, worker: str) -> bool:
        """Asks a worker to finish and leave; returns whether it is connected."""
        ...


class Epoch(Protocol):
    """The leadership of this control plane."""

    @property
    def number(self) -> int:
        """The count of this store's leaderships up to this one."""
        ...
