"""Deletes runs that have ended, for their users; called by the API."""

import asyncio
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass

import msgspec

from flowmesh_api.v1.enums import ENDED_PHASES
from flowmesh_control.cache.run_retention import RunRetention
from flowmesh_control.errors import ConflictError
from flowmesh_control.loop.clock import Clock
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.records.deleted_runs import DeletedRun, DeletedRuns
from flowmesh_control.records.ended_index import EndedRunIndex
from flowmesh_control.records.run_records import summary_of
from flowmesh_core.accounting.charges import ALL_DAYS

COUNTED_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class RunDeletion:
    """Deletes runs.

    Attributes:
        views: of runs.
        index: knows whether the durable accounts count a run.
        deleted: keeps what deleted runs paid.
        retention: deletes their records.
        of_batches: returns the uids of the runs of batches, which stay with these.
    """

    views: RunViews
    index: EndedRunIndex
    deleted: DeletedRuns
    retention: RunRetention
    of_batches: Callable[[], Awaitable[Container[str]]]
    clock: Clock

    async def delete(self, uid: str) -> None:
        """Deletes a run from lists and lineage, with its records; bills go on with what it paid.

        Published results stay for those who use them; what nothing needs is collected later.

        Raises:
            NotFoundError: there is no such run.
            ConflictError: it has not ended, or belongs to a batch.
            DamagedRecordError: a record of it cannot be read.
            StoreError: try again; what was deleted stays deleted.
        """
        if uid not in self.deleted:
            await self._note(uid)
        await self.retention.delete(uid)

    async def _note(self, uid: str) -> None:
        where = f"runs/{uid}"
        status = await self.views.status(uid)
        if status.phase not in ENDED_PHASES:
            remedy = f"`fmesh cancel {uid}` ends it; then delete it"
            raise ConflictError(
                f"run {uid} has not ended ({status.phase})", where=where, remedy=remedy
            )
        if uid in await self.of_batches():
            raise ConflictError(
                f"run {uid} belongs to a batch, which shows its status and outputs",
                where=where,
                remedy="it stays as long as its batch",
            )
        try:
            async with asyncio.timeout(COUNTED_WITHIN_S):
                await self.index.written(uid)
        except TimeoutError:
            raise ConflictError(
                f"what run {uid} paid is not counted yet", where=where, remedy="try again later"
            ) from None
        run = msgspec.structs.replace(summary_of(status), message="")
        paid = await self.views.receipt(uid), await self.views.charges(uid, ALL_DAYS)
        await self.deleted.add(DeletedRun(run, *paid, deleted_s=self.clock()))
