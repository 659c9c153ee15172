"""Recovery: finds the runs in the store when a control plane starts.

Called by the control plane after it began its epoch. Runs with a valid ``final`` have ended. The
others are submitted to the machine again, exactly as they were pinned and with their ledger lines:
their published results are cache hits, and attempts that workers still run are adopted within the
synchronisation window.

The time goes by the number of unfinished runs: the index of ended runs, and the record of which
leader owned which run, settle the others without reading them. Of those only the uids are listed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeVar

from flowmesh_api.v1.enums import Phase, StepState
from flowmesh_api.v1.runs import RunStatus, StepStatus
from flowmesh_api.v1.why import AttemptLine, HitLine
from flowmesh_control.errors import NewerPlanError
from flowmesh_control.records.accounts import (
    AccountsRecord,
    OpeningBalance,
    bring_up_to_date,
    read_last,
)
from flowmesh_control.records.archive import FINAL_REMEDY, Archive
from flowmesh_control.records.deleted_runs import DeletedRuns
from flowmesh_control.records.ended_index import AT_ONCE, EndedRunIndex, read_ended
from flowmesh_control.records.keys import final_key, ledger_prefix, parse_segment, spec_key
from flowmesh_control.records.known_keys import known_keys, run_uids
from flowmesh_control.records.ledger import LedgerWriter, read_segments
from flowmesh_control.records.run_ownership import read_taken, write_taken
from flowmesh_control.records.run_pins import read_pins
from flowmesh_control.records.run_records import (
    FinalRecord,
    PinsRecord,
    SpecRecord,
    decode_record,
    final_decoder,
    spec_decoder,
    submission_of,
    unreadable,
)
from flowmesh_control.records.suspects import CONTROL_PLANE_STOPPED, DEATHS_MAX
from flowmesh_core.accounting.daily_totals import DailyTotals
from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.errors import DamagedRecordError, StoreError
from flowmesh_core.graph.plan import Plan
from flowmesh_core.identity import SCHEME
from flowmesh_core.machine.events import Submitted
from flowmesh_store.ports import Records, RecordStore

log = logging.getLogger("flowmesh.control")

STORE_ONLY_READ = "store-only-read"
"""The reason of an unfinished run that waits because the store is read-only."""
NEWER_PLAN = "newer-plan"
"""The reason of an unfinished run whose plan only a newer release runs."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(slots=True)
class RecoveredState:
    """The runs and accounts that were found in the store.

    Attributes:
        deleted: runs that users deleted.
        submitted: unfinished runs, in order of creation.
        specs: their specs by uid.
        waiting: unfinished runs that this control plane cannot continue.
        opening: the accounts to continue with.
    """

    deleted: DeletedRuns
    submitted: list[Submitted] = field(default_factory=list)
    specs: dict[str, SpecRecord] = field(default_factory=dict)
    waiting: dict[str, RunStatus] = field(default_factory=dict)
    opening: OpeningBalance = field(default_factory=OpeningBalance)


async def recover(
    records: Records,
    *,
    ledger: LedgerWriter,
    archive: Archive,
    index: EndedRunIndex,
    catalog: Catalog,
    deaths: Mapping[str, int],
    refusal: StoreError | None = None,
) -> RecoveredState:
    """Finds every run, and opens the ledgers of the unfinished ones.

    Args:
        records: of the store.
        ledger: of the new epoch.
        archive: receives the ended runs, and those that cannot be read.
        index: receives entries for ended runs that have none.
        catalog: the contracts that plans may use.
        deaths: how many control planes died while they worked on a run, by its uid.
        refusal: why the store is read-only; then nothing is written, and unfinished runs wait.
    """
    indexed = await read_ended(records)
    last, owners = await read_last(records), await read_taken(records)
    ended, others = [], []
    deleted = await DeletedRuns.listed(records)
    for uid in await run_uids(records):
        if uid in deleted:  # its deletion was interrupted
            continue
        line = indexed.get(uid)
        if line is not None and line.epoch >= owners[uid]:
            ended.append(line.run)
        else:
            others.append(uid)
    for run in sorted(ended, key=lambda run: run.ended_s):
        archive.note(run)
    recovery = _Recovery(records, ledger, archive, index, catalog, last, deaths, refusal, deleted)
    return await recovery.run(others, {run.uid for run in ended})


class _Recovery:
    """Reads the runs that the index of ended runs does not settle."""

    def __init__(
        self,
        records: RecordStore,
        ledger: LedgerWriter,
        archive: Archive,
        index: EndedRunIndex,
        catalog: Catalog,
        last: AccountsRecord | None,
        deaths: Mapping[str, int],
        refusal: StoreError | None,
        deleted: DeletedRuns,
    ) -> None:
        self._records = records
        self._ledger = ledger
        self._archive = archive
        self._index = index
        self._catalog = catalog
        self._last = last
        self._deaths = deaths
        self._refusal = refusal
        self._recovered = RecoveredState(deleted)
        self._spent = DailyTotals(None if last is None else last.spent)

    async def run(self, uids: Sequence[str], indexed: Set[str]) -> RecoveredState:
        """Reads runs, and opens the accounts.

        Args:
            uids: of the runs to read.
            indexed: runs that have ended according to the index.
        """
        seen = await _map_in_batches(self._read_run, uids)
        ended = [found for found in seen if isinstance(found, FinalRecord)]
        unfinished = [found for found in seen if isinstance(found, SpecRecord)]
        uncounted = await _map_in_batches(self._add_ended, ended)
        epoch = self._ledger.epoch
        if self._refusal is None:
            await write_taken(self._records, epoch=epoch, uids=[spec.uid for spec in unfinished])
            uncounted += await _map_in_batches(self._add_unfinished, unfinished)
        else:
            await _map_in_batches(self._defer, unfinished)
        later = [line for lines in uncounted for line in lines]
        known = {final.status.uid for final in ended} | indexed | self._recovered.specs.keys()
        absent = () if self._last is None else self._last.counted.keys() - known
        opening = bring_up_to_date(self._last, later, absent)
        opening.spent = self._spent.all()
        self._recovered.opening = opening
        self._recovered.submitted.sort(key=lambda s: (s.created_s, s.uid))
        return self._recovered

    async def _read_run(self, uid: str) -> FinalRecord | SpecRecord | None:
        """Returns a run's end, or its spec where it has none.

        None where no submission was accepted, or a record is damaged.
        """
        spec: SpecRecord | None = None
        try:
            spec = await _spec(self._records, uid)
            if spec is None:
                return None
            return await _final(self._records, uid) or spec
        except DamagedRecordError as e:
            self._add_unreadable(uid, spec, e)
            return None

    def _add_unreadable(self, uid: str, spec: SpecRecord | None, error: DamagedRecordError) -> None:
        """Lists a run with a damaged record, and leaves it as it is; other runs are unaffected."""
        log.warning("run %s cannot be read: %s", uid, error, extra={"run": uid})
        self._archive.note_damaged(unreadable(uid, spec, error), error)

    async def _add_unfinished(self, spec: SpecRecord) -> tuple[Line, ...]:
        """Adds an unfinished run; returns its ledger lines that the accounts do not count."""
        try:
            restored = await self._ledger.open(spec.uid)
            await self._resume(spec, restored)
        except DamagedRecordError as e:
            self._ledger.close(spec.uid)
            self._add_unreadable(spec.uid, spec, e)
            return ()
        self._recovered.specs[spec.uid] = spec
        counted = 0 if self._last is None else self._last.counted.get(spec.uid, 0)
        return self._spend(spec.namespace, restored[counted:])

    def _spend(self, namespace: str, lines: tuple[Line, ...]) -> tuple[Line, ...]:
        """Adds what lines that the accounts do not count say that a namespace paid."""
        for line in lines:
            if isinstance(line, AttemptLine):
                self._spent.add(namespace, line.share_nanousd, line.time_s)
        return lines

    async def _resume(self, spec: SpecRecord, restored: tuple[Line, ...]) -> None:
        """Submits a run again, or lets it wait with a reason."""
        found, uid = self._recovered, spec.uid
        try:
            pins = await read_pins(self._records, uid, restored)
        except NewerPlanError as e:
            found.waiting[uid] = _newer_plan_status(spec, restored, e)
            return
        wait = self._reason_to_wait(uid, pins)
        if wait is not None:
            found.waiting[uid] = _waiting_status(spec, pins.plan, restored, *wait)
        else:
            found.submitted.append(submission_of(spec, pins, restored))

    def _reason_to_wait(self, uid: str, pins: PinsRecord) -> tuple[str, str, str] | None:
        """Returns reason, message and remedy of a run that must not continue now."""
        missing = _missing_version(pins, self._catalog)
        if missing:
            remedy = f"install the pinned version, or `fmesh repin {uid}`, or cancel it"
            return "version-not-offered", missing, remedy
        if self._deaths.get(uid, 0) >= DEATHS_MAX:
            message = "the control plane stopped twice while it worked on this run"
            remedy = f"`fmesh cancel {uid}`; or an administrator continues it: `fmesh resume {uid}`"
            return CONTROL_PLANE_STOPPED, message, remedy
        return None

    async def _defer(self, spec: SpecRecord) -> None:
        """Adds an unfinished run that only waits, because the store is read-only."""
        refusal = self._refusal
        try:
            lines = (await read_segments(self._records, spec.uid)).lines
            pins = await read_pins(self._records, spec.uid, lines)
        except DamagedRecordError as e:
            self._add_unreadable(spec.uid, spec, e)
            return
        except NewerPlanError as e:
            self._recovered.waiting[spec.uid] = _newer_plan_status(spec, lines, e)
            return
        if refusal is not None:
            reason = f"it waits because the store is read-only: {refusal.message}"
            self._recovered.waiting[spec.uid] = _waiting_status(
                spec, pins.plan, lines, STORE_ONLY_READ, reason, refusal.remedy
            )

    async def _add_ended(self, final: FinalRecord) -> tuple[Line, ...]:
        uid = final.status.uid
        self._archive.add(final)
        self._index.add(final)
        counted = 0
        if self._last is not None:
            known = self._last.counted_of_ended(uid, final.epoch, final.status.ended_s)
            if known is None:
                return ()
            counted = known
        try:
            lines = (await read_segments(self._records, uid)).lines[counted:]
        except DamagedRecordError as e:
            log.warning("the accounts do not count the last lines of run %s: %s", uid, e)
            return ()
        return self._spend(final.status.namespace, lines)


async def _map_in_batches(
    work: Callable[[_Item], Awaitable[_Result]], given: Sequence[_Item]
) -> list[_Result]:
    """Returns the results in order; ``AT_ONCE`` run concurrently."""
    found: list[_Result] = []
    for start in range(0, len(given), AT_ONCE):
        found += await asyncio.gather(*map(work, given[start : start + AT_ONCE]))
    return found


async def _final(records: RecordStore, uid: str) -> FinalRecord | None:
    """Returns a run's end; ignores one that an earlier leader wrote after losing leadership."""
    record = await records.read(final_key(uid))
    if record is None:
        return None
    final = decode_record(
        final_decoder, final_key(uid), record, remedy=FINAL_REMEDY.format(uid=uid)
    )
    segments = [at async for _, at in known_keys(records, ledger_prefix(uid), parse_segment)]
    opened = max((epoch for epoch, number in segments if number == 0), default=0)
    return None if final.epoch < opened else final


async def _spec(records: RecordStore, uid: str) -> SpecRecord | None:
    """Returns what was submitted; None where the submission was interrupted before acceptance."""
    record = await records.read(spec_key(uid))
    return None if record is None else decode_record(spec_decoder, spec_key(uid), record)


def _missing_version(pins: PinsRecord, catalog: Catalog) -> str:
    if pins.scheme != SCHEME:
        return f"it is pinned to identity scheme {pins.scheme}; this release has {SCHEME}"
    for step in pins.plan.steps:
        pinned = (step.engine, step.contract, step.implementation)
        if catalog.pinned(*pinned) is None:
            return (
                f"step {step.path} is pinned to {step.engine} version {step.contract}."
                f"{step.implementation}, which is not installed"
            )
        if catalog.pinned(*pinned, step.minor) is None:
            return (
                f"step {step.path} sets what minor {step.minor} of {step.engine} version "
                f"{step.contract} added; this release does not have it"
            )
    return ""


def _newer_plan_status(
    spec: SpecRecord, lines: tuple[Line, ...], error: NewerPlanError
) -> RunStatus:
    return _waiting_status(spec, None, lines, NEWER_PLAN, error.message, error.remedy)


def _waiting_status(
    spec: SpecRecord,
    plan: Plan | None,
    lines: tuple[Line, ...],
    reason: str,
    message: str,
    remedy: str,
) -> RunStatus:
    paid = [line for line in lines if isinstance(line, AttemptLine)]
    hits = [line for line in lines if isinstance(line, HitLine)]
    steps = () if plan is None else plan.steps
    return RunStatus(
        uid=spec.uid,
        name=spec.name,
        namespace=spec.namespace,
        phase=Phase.SUSPENDED,
        created_s=spec.created_s,
        steps=tuple(StepStatus(s.path, s.engine, StepState.PENDING) for s in steps),
        counts={StepState.PENDING: len(steps)},
        paid_nanousd=sum(line.share_nanousd for line in paid),
        saved_nanousd=sum(line.saved_nanousd for line in hits),
        budget_nanousd=0 if plan is None else plan.budget_nanousd,
        reason=reason,
        message=message,
        remedy=remedy,
    )
