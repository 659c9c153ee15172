"""Ended runs: summaries and a few complete ones in memory, the rest in the store."""

from collections import OrderedDict

from flowmesh_api.v1.runs import RunSummary
from flowmesh_control.records.keys import final_key
from flowmesh_control.records.run_records import (
    FinalRecord,
    decode_record,
    final_decoder,
    summary_of,
)
from flowmesh_core.errors import DamagedRecordError
from flowmesh_store.ports import RecordStore

SUMMARIES = 20_000
WHOLE = 64
FINAL_REMEDY = (
    "restore the object from a copy of the store; or delete it, and run {uid} goes on where its "
    "ledger ends when the control plane starts again"
)


class Archive:
    """Ended runs, with bounded memory however many there are."""

    def __init__(
        self, records: RecordStore, *, summaries: int = SUMMARIES, whole: int = WHOLE
    ) -> None:
        """Starts empty.

        Args:
            records: has the ``final`` records.
            summaries: the most summaries in memory.
            whole: the most complete runs in memory.
        """
        self._records = records
        self._summaries_max = summaries
        self._whole_max = whole
        self._summaries: OrderedDict[str, RunSummary] = OrderedDict()
        self._whole: OrderedDict[str, FinalRecord] = OrderedDict()
        self._damaged: dict[str, DamagedRecordError] = {}

    def add(self, final: FinalRecord) -> None:
        """Adds a run that has ended."""
        self.note(summary_of(final.status))
        self._whole[final.status.uid] = final
        while len(self._whole) > self._whole_max:
            self._whole.popitem(last=False)

    def note(self, run: RunSummary) -> None:
        """Adds only the summary of a run."""
        self._summaries[run.uid] = run
        while len(self._summaries) > self._summaries_max:
            self._summaries.popitem(last=False)

    def note_damaged(self, run: RunSummary, error: DamagedRecordError) -> None:
        """Adds a run with a damaged record: it is listed, and reading it raises the error."""
        self.note(run)
        self._damaged[run.uid] = error

    def forget(self, uid: str) -> None:
        """Drops a run whose records were deleted."""
        self._summaries.pop(uid, None)
        self._whole.pop(uid, None)
        self._damaged.pop(uid, None)

    async def get(self, uid: str) -> FinalRecord | None:
        """Returns a run's end; None where it has not ended or is unknown.

        Raises:
            DamagedRecordError: the record of its end, or another of its records, cannot be read.
        """
        held = self._whole.get(uid)
        if held is not None:
            self._whole.move_to_end(uid)
            return held
        key = final_key(uid)
        damaged = self._damaged.get(uid)
        if damaged is not None and damaged.key != key:
            raise damaged
        record = await self._records.read(key)
        if record is None:
            return None
        return decode_record(final_decoder, key, record, remedy=FINAL_REMEDY.format(uid=uid))

    def summaries(self) -> list[RunSummary]:
        """Returns the latest ended runs, oldest first."""
        return list(self._summaries.values())

    def namespace(self, uid: str) -> str | None:
        """Returns the namespace of one of the latest ended runs; None for other runs."""
        known = self._summaries.get(uid)
        return None if known is None else known.namespace

    def __contains__(self, uid: object) -> bool:
        """Whether the run is among the latest ended ones."""
        return uid in self._summaries
