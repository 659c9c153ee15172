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
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeVar

from flowmesh_api.v1.enums import Phase, StepState
from flowmesh_api.v1.runs import RunStatus, StepStatus
from flowmesh_control.records.accounts import (
    AccountsRecord,
    OpeningBalance,
    bring_up_to_date,
    read_last,
)
from flowmesh_control.records.archive import FINAL_REMEDY, Archive
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
    unreadable,
)
from flowmesh_core.accounting.ledger_lines import AttemptLine, HitLine, Line
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.errors import DamagedRecordError, StoreError
from flowmesh_core.identity import SCHEME
from flowmesh_core.machine.events import Submitted
from flowmesh_store.ports import Records, RecordStore

log = logging.getLogger("flowmesh.control")

STORE_ONLY_READ = "store-only-read"
"""The reason of an unfinished run that waits because the store is read-only."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(slots=True)
class RecoveredState:
    """The runs and accounts that were found in the store.

    Attributes:
        submitted: unfinished runs, in order of creation.
        specs: their specs by uid.
        waiting: unfinished runs whose pinned versions the catalog does not have.
        opening: the accounts to continue with.
    """

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
    refusal: StoreError | None = None,
) -> RecoveredState:
    """Finds every run, and opens the ledgers of the unfinished ones.

    Args:
        records: of the store.
        ledger: of the new epoch.
        archive: receives the ended runs, and those that cannot be read.
        index: receives entries for ended runs that have none.
        catalog: the contracts that plans may use.
        refusal: why the store is read-only; then nothing is written, and unfinished runs wait.
    """
    indexed = await read_ended(records)
    last, owners = await read_last(records), await read_taken(records)
    ended, others = [], []
    for uid in await run_uids(records):
        line = indexed.get(uid)
        if line is not None and line.epoch >= owners[uid]:
            ended.append(line.run)
        else:
            others.append(uid)
    for run in sorted(ended, key=lambda run: run.ended_s):
        archive.note(run)
    recovery = _Recovery(records, ledger, archive, index, catalog, last, refusal)
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
        refusal: StoreError | None,
    ) -> None:
        self._records = records
        self._ledger = ledger
        self._archive = archive
        self._index = index
        self._catalog = catalog
        self._last = last
        self._refusal = refusal
        self._recovered = RecoveredState()

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
        self._recovered.opening = bring_up_to_date(self._last, later, absent)
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
            await _resume(self._records, spec, restored, self._catalog, self._recovered)
        except DamagedRecordError as e:
            self._ledger.close(spec.uid)
            self._add_unreadable(spec.uid, spec, e)
            return ()
        self._recovered.specs[spec.uid] = spec
        return restored[0 if self._last is None else self._last.counted.get(spec.uid, 0) :]

    async def _defer(self, spec: SpecRecord) -> None:
        """Adds an unfinished run that only waits, because the store is read-only."""
        refusal = self._refusal
        try:
            lines = (await read_segments(self._records, spec.uid)).lines
            pins = await read_pins(self._records, spec.uid, lines)
        except DamagedRecordError as e:
            self._add_unreadable(spec.uid, spec, e)
            return
        if refusal is not None:
            reason = f"it waits because the store is read-only: {refusal.message}"
            self._recovered.waiting[spec.uid] = _waiting_status(
                spec, pins, lines, STORE_ONLY_READ, reason, refusal.remedy
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
            return (await read_segments(self._records, uid)).lines[counted:]
        except DamagedRecordError as e:
            log.warning("the accounts do not count the last lines of run %s: %s", uid, e)
            return ()


async def _resume(
    records: RecordStore,
    spec: SpecRecord,
    restored: tuple[Line, ...],
    catalog: Catalog,
    found: RecoveredState,
) -> None:
    pins = await read_pins(records, spec.uid, restored)
    reason = _missing_version(pins, catalog)
    if reason:
        remedy = f"install the pinned version, or `fmesh repin {spec.uid}`, or cancel it"
        found.waiting[spec.uid] = _waiting_status(
            spec, pins, restored, "version-not-offered", reason, remedy
        )
        return
    found.submitted.append(
        Submitted(
            uid=spec.uid,
            plan=pins.plan,
            created_s=spec.created_s,
            scopes=pins.scopes,
            artifacts=pins.artifacts,
            restored=restored,
            quarantine_salts=pins.quarantine_salts,
        )
    )


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
        final_decoder, final_key(uid), record.data, remedy=FINAL_REMEDY.format(uid=uid)
    )
    segments = [at async for _, at in known_keys(records, ledger_prefix(uid), parse_segment)]
    opened = max((epoch for epoch, number in segments if number == 0), default=0)
    return None if final.epoch < opened else final


async def _spec(records: RecordStore, uid: str) -> SpecRecord | None:
    """Returns what was submitted; None where the submission was interrupted before acceptance."""
    record = await records.read(spec_key(uid))
    return None if record is None else decode_record(spec_decoder, spec_key(uid), record.data)


def _missing_version(pins: PinsRecord, catalog: Catalog) -> str:
    if pins.scheme != SCHEME:
        return f"it is pinned to identity scheme {pins.scheme}; this release has {SCHEME}"
    for step in pins.plan.steps:
        if catalog.pinned(step.engine, step.contract, step.implementation) is None:
            return (
                f"step {step.path} is pinned to {step.engine} version {step.contract}."
                f"{step.implementation}, which is not installed"
            )
    return ""


def _waiting_status(
    spec: SpecRecord,
    pins: PinsRecord,
    lines: tuple[Line, ...],
    reason: str,
    message: str,
    remedy: str,
) -> RunStatus:
    paid = [line for line in lines if isinstance(line, AttemptLine)]
    hits = [line for line in lines if isinstance(line, HitLine)]
    steps = pins.plan.steps
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
        budget_nanousd=pins.plan.budget_nanousd,
        reason=reason,
        message=message,
        remedy=remedy,
    )
