"""Commands on runs: submit, amend, cancel; called by the API and the operator."""

from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

from flowmesh_api.v1.runs import RunAccepted, RunStatus
from flowmesh_control.errors import ConflictError
from flowmesh_control.runs.admission import Admission, Submission
from flowmesh_control.runs.cancellations import RunCanceller
from flowmesh_core.machine.events import Amended


@dataclass(frozen=True, slots=True)
class RunCommands:
    """Changes runs.

    Attributes:
        live: runs under way.
        waiting: runs that cannot continue with the versions that they are pinned to; one that was
            re-pinned just now may be in both.
        post_and_wait: posts an event to the machine and waits until it was applied.
    """

    admission: Admission
    canceller: RunCanceller
    live: Container[str]
    waiting: Mapping[str, RunStatus]
    post_and_wait: Callable[[Amended], Awaitable[None]]

    async def submit(self, submission: Submission) -> RunAccepted:
        """As :meth:`Admission.submit`."""
        return await self.admission.submit(submission)

    async def amend(self, uid: str, changes: dict[str, Any]) -> None:
        """Changes the terms of a run under way.

        Args:
            uid: of a run that has not ended.
            changes: in the form of :class:`Amended`.

        Raises:
            ConflictError: it waits for an engine; the message says which.
        """
        waits = self.waiting.get(uid)
        if waits is not None and uid not in self.live:
            raise ConflictError(waits.message, where=f"runs/{uid}", remedy=waits.remedy)
        await self.post_and_wait(Amended(uid, changes))

    async def cancel(self, uid: str, reason: str, submitter: str = "") -> None:
        """As :meth:`RunCanceller.cancel`; for a submitter only if no other submission wants it."""
        if submitter and self.admission.submitters.leave(uid, submitter):
            return
        await self.canceller.cancel(uid, reason)
