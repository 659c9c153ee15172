"""Withholds results by provenance, releases them, and says what is concerned (ADR 46)."""

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from flowmesh_api.v1.withheld import (
    ResultSelector,
    WithheldPage,
    WithheldResult,
    WithholdReport,
)
from flowmesh_control.loop.clock import Clock
from flowmesh_control.records.archive import Archive
from flowmesh_control.records.derived_artifacts import derived_from
from flowmesh_control.records.lineage_index import LineageIndex
from flowmesh_control.records.withheld_records import WithheldRecords
from flowmesh_control.withholding.concerned import concerned_runs, derived_artifacts
from flowmesh_control.withholding.reruns import Reruns
from flowmesh_control.withholding.search import FoundResult, search
from flowmesh_core.audit.provenance import provenance_of
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.result_selection import ResultSelection
from flowmesh_core.protocol.results import PartProvenance, Provenance
from flowmesh_store.batched_requests import each_of, in_batches
from flowmesh_store.store import Store

log = logging.getLogger("flowmesh.control")

RESULTS_SHOWN = 1_000
"""Of more results an answer names the first."""


class Withholding:
    """Withholds, lists and releases results; for administrators and for sampled audits."""

    def __init__(
        self,
        *,
        store: Store,
        state: State,
        archive: Archive,
        lineage: LineageIndex,
        withheld: WithheldRecords,
        reruns: Reruns,
        applied: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """Keeps what it works with.

        Args:
            store: with sealed records.
            state: the machine's, to read.
            archive: of ended runs.
            lineage: the index of derivations.
            withheld: the records of what is withheld.
            reruns: starts runs once more.
            applied: waits until the machine has applied what was posted before.
            clock: Unix time in seconds.
        """
        self._store = store
        self._state = state
        self._archive = archive
        self._lineage = lineage
        self._withheld = withheld
        self._reruns = reruns
        self._applied = applied
        self._clock = clock

    async def withhold(
        self,
        selector: ResultSelector,
        *,
        dry_run: bool = False,
        rerun: bool = False,
        purge: bool = False,
        reason: str = "",
    ) -> WithholdReport:
        """Withholds the results of a selection that exist now.

        Look-ups miss all of them from the first moment on, while their records are searched for. A
        look-up that was answered just before is still delivered: its run is among the concerned.

        Args:
            selector: which results.
            dry_run: change nothing.
            rerun: start the runs concerned once more.
            purge: delete the results.
            reason: what withholds them; by default the selection.

        Raises:
            FlowMeshError: the selection is empty.
            StoreError: not everything was withheld; repeat it.
        """
        started, now_s = time.monotonic(), self._clock()
        selection = _selection(selector, now_s)
        if not dry_run:
            self._withheld.hidden.hide_all(selection)
            await self._applied()
        outcome = await search(self._store, selection)
        found, why = outcome.found, reason or selection.describe()
        results = [withheld_result(one, now_s, why) for one in found]
        if not dry_run:
            await self._withheld.add(results)
            log.warning("%d results are withheld: %s", len(results), why)
        lineage = await derived_from(self._lineage, {d for f in found for d in f.identities})
        runs = concerned_runs(found, lineage, self._state.runs.values(), self._archive.summaries())
        if rerun and not dry_run:
            runs = tuple([await self._reruns.start(run) for run in runs])
        return WithholdReport(
            read=outcome.read,
            count=len(found),
            scopes=dict(sorted(Counter(one.scope for one in found).items())),
            results=tuple(results[:RESULTS_SHOWN]),
            runs=runs,
            derived=derived_artifacts(lineage),
            cut=lineage.cut,
            purged=await self._purge(found) if purge and not dry_run else 0,
            connected=self._connected(selector),
            took_s=time.monotonic() - started,
        )

    async def release(self, selector: ResultSelector) -> int:
        """Lets look-ups find the withheld results of a selection again; returns how many.

        Raises:
            FlowMeshError: the selection is empty.
            StoreError: not everything was released; repeat it.
        """
        selection = _selection(selector, self._clock())
        self._withheld.hidden.clear_selections()
        released = [
            (result.scope, result.action_id)
            async for result in self._withheld.all()
            if selection.meets(_made(result), result.created_s)
        ]
        return await self._withheld.remove(released)

    async def page(self) -> WithheldPage:
        """Returns the number of withheld results, and the first of them."""
        shown: list[WithheldResult] = []
        async for result in self._withheld.all():
            shown.append(result)
            if len(shown) == RESULTS_SHOWN:
                break
        return WithheldPage(self._withheld.hidden.count, tuple(shown))

    async def _purge(self, found: Sequence[FoundResult]) -> int:
        """Deletes results, then the records that withhold them."""

        async def delete(one: FoundResult) -> bool:
            return await self._store.sweepable_records.delete(one.key, older_than_s=0.0)

        deleted = sum([gone async for _, gone in in_batches(each_of(found), delete)])
        await self._withheld.remove((one.scope, one.result.action_id) for one in found)
        return deleted

    def _connected(self, selector: ResultSelector) -> tuple[str, ...]:
        """Returns the workers of the selection that may get new work."""
        if not selector.worker and not selector.pool:
            return ()
        return tuple(
            worker.name
            for worker in self._state.workers.values()
            if selector.worker in ("", worker.name)
            and selector.pool in ("", worker.shape.pool)
            and self._state.takes_work(worker)
        )


def _selection(selector: ResultSelector, now_s: float) -> ResultSelection:
    selection = ResultSelection(
        selector.pool,
        selector.worker,
        selector.attempt,
        selector.library,
        selector.since_s,
        now_s,
    )
    if selection.is_empty:
        raise FlowMeshError(
            "no condition is given, so every result would be withheld",
            where="withheld",
            remedy="name a pool, a worker, an attempt, a library or a time",
        )
    return selection


def withheld_result(found: FoundResult, now_s: float, reason: str) -> WithheldResult:
    """Returns the record that withholds a result."""
    result = found.result
    return WithheldResult(
        scope=found.scope,
        action_id=result.action_id,
        engine=result.engine,
        generation=result.generation,
        created_s=result.created_s,
        withheld_s=now_s,
        reason=reason,
        expires_s=result.expires_s,
        uid=result.run_uid,
        namespace=result.namespace,
        made_by=provenance_of(result.provenance),
        parts=tuple((p.attempt_id, p.worker, p.pool, p.created_s) for p in result.provenance.parts),
    )


def _made(result: WithheldResult) -> Provenance:
    made = result.made_by
    return Provenance(
        worker=made.worker,
        pool=made.pool,
        attempt_id=made.attempt_id,
        libraries=made.libraries,
        parts=tuple(PartProvenance(*part) for part in result.parts),
    )
