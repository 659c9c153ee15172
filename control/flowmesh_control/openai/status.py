"""The status of a batch, from its record and its run."""

from dataclasses import dataclass

import msgspec

from flowmesh_api.openai.batches import (
    BatchError,
    BatchErrors,
    BatchList,
    BatchObject,
    RequestCounts,
)
from flowmesh_api.v1.enums import FailureKind, Phase
from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.errors import NotFoundError
from flowmesh_control.openai.records import BatchRecord, OpenAiRecords
from flowmesh_control.openai.results import BatchResults
from flowmesh_control.queries.run_views import RunViews
from flowmesh_core.spec.quantities import seconds

ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
_ENDS = {Phase.SUCCEEDED: "completed", Phase.CANCELLED: "cancelled"}


@dataclass(frozen=True, slots=True)
class BatchStatuses:
    """Describes batches.

    Attributes:
        batches: their records.
        views: of runs.
        results: of batches.
    """

    batches: OpenAiRecords[BatchRecord]
    views: RunViews
    results: BatchResults

    async def describe(self, batch: BatchRecord) -> BatchObject:
        """Returns a batch as the API shows it."""
        run = await self._run(batch)
        status = _status(batch, run)
        counts = await self._counts(batch, run, status)
        ended = status in ENDED and run is not None
        shown = BatchObject(
            id=batch.id,
            endpoint=batch.endpoint,
            input_file_id=batch.file_id,
            completion_window=batch.window,
            status=status,
            created_at=int(batch.created_s),
            errors=_errors(batch, run, status),
            output_file_id=output_name(batch) if ended and counts.completed else None,
            error_file_id=error_name(batch) if ended and counts.failed else None,
            expires_at=int(batch.created_s + seconds(batch.window)),
            request_counts=counts,
            metadata=batch.metadata or None,
            run_id=batch.uid if run is not None else "",
        )
        return msgspec.structs.replace(shown, **_times(batch, run, status))

    async def page(self, namespace: str, after: str, limit: int) -> BatchList:
        """Returns the latest batches after an id."""
        found, more = await self.batches.page(namespace, after, limit)
        shown = tuple([await self.describe(record) for record in found])
        first, last = (shown[0].id, shown[-1].id) if shown else (None, None)
        return BatchList(shown, more, first, last)

    async def _run(self, batch: BatchRecord) -> RunStatus | None:
        if not batch.index:
            return None
        try:
            return await self.views.status(batch.uid)
        except NotFoundError:
            return None

    async def _counts(
        self, batch: BatchRecord, run: RunStatus | None, status: str
    ) -> RequestCounts:
        if run is None:
            return RequestCounts(batch.total, 0, batch.wrong)
        try:
            completed, refused = await self.results.counts(batch)
        except NotFoundError:  # the run waits for an engine
            completed, refused = 0, 0
        failed = batch.total - completed if status in ENDED else batch.wrong + refused
        return RequestCounts(batch.total, completed, failed)


def output_name(batch: BatchRecord) -> str:
    """Returns the id of a batch's output file."""
    return f"file-{batch.id.removeprefix('batch_')}-output"


def error_name(batch: BatchRecord) -> str:
    """Returns the id of a batch's error file."""
    return f"file-{batch.id.removeprefix('batch_')}-errors"


def _status(batch: BatchRecord, run: RunStatus | None) -> str:
    if batch.failed is not None:
        return "failed"
    if run is None:
        return "cancelled" if batch.cancelling_s else "validating"
    if run.phase == Phase.FAILED:
        return "expired" if run.reason == FailureKind.DEADLINE else "failed"
    if run.phase in _ENDS:
        return _ENDS[Phase(run.phase)]
    if batch.cancelling_s:
        return "cancelling"
    done = bool(run.steps) and all(step.ended_s for step in run.steps)
    return "finalizing" if done else "in_progress"


def _times(batch: BatchRecord, run: RunStatus | None, status: str) -> dict[str, int]:
    found = {}
    if batch.started_s:
        found["in_progress_at"] = int(batch.started_s)
    if batch.cancelling_s:
        found["cancelling_at"] = int(batch.cancelling_s)
    ended_s = run.ended_s if run is not None else batch.failed_s or batch.cancelling_s
    if status in ENDED:
        found[f"{status}_at"] = int(ended_s)
        if status == "completed":
            found["finalizing_at"] = int(ended_s)
    return found


def _errors(batch: BatchRecord, run: RunStatus | None, status: str) -> BatchErrors | None:
    if batch.failed is not None:
        failed = batch.failed
        return BatchErrors((BatchError(failed.code, failed.message, failed.line or None),))
    if status == "failed" and run is not None:
        message = f"{run.message}; {run.remedy}" if run.remedy else run.message
        return BatchErrors((BatchError(run.reason, message),))
    return None
