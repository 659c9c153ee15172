"""What stays of runs that their users deleted: which they were, and what they paid.

Bills go on with it, and the runs are left out of lists and lineage. A record is written before the
records of its run are deleted, so that a run whose deletion was interrupted is not listed again:
the next collection deletes the rest.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Self

import msgspec

from flowmesh_api.v1.charges import Charge
from flowmesh_api.v1.receipts import Receipt
from flowmesh_api.v1.runs import RunSummary
from flowmesh_control.records.keys import DELETED, deleted_key
from flowmesh_control.records.known_keys import known_keys
from flowmesh_control.records.run_records import decode_record
from flowmesh_core.errors import ConditionFailedError, DamagedRecordError
from flowmesh_store.batched_requests import each_of, in_batches
from flowmesh_store.ports import RecordStore

log = logging.getLogger("flowmesh.control")


class DeletedRun(msgspec.Struct, frozen=True):
    """``deleted/<uid>``: a run that was deleted, without content.

    Attributes:
        run: for bills, without its message.
        deleted_s: when, as Unix time in seconds.
    """

    run: RunSummary
    receipt: Receipt
    charges: list[Charge]
    deleted_s: float


class DeletedRuns:
    """The deleted runs; what they paid is read at the first question for it."""

    def __init__(self, records: RecordStore, uids: Iterable[str] = ()) -> None:
        self._records = records
        self._runs: dict[str, DeletedRun | None] = dict.fromkeys(uids)
        self._lock = asyncio.Lock()

    @classmethod
    async def listed(cls, records: RecordStore) -> Self:
        """Returns the deleted runs of a store."""
        found = known_keys(records, DELETED, lambda key: key.removeprefix(DELETED) or None)
        return cls(records, [uid async for _, uid in found])

    async def add(self, deleted: DeletedRun) -> None:
        """Notes a run, whose records may be deleted then.

        Raises:
            StoreUnavailableError, StoreFullError: it was not noted.
        """
        uid = deleted.run.uid
        try:
            await self._records.write(deleted_key(uid), msgspec.json.encode(deleted))
        except ConditionFailedError:  # an earlier write whose answer was lost
            self._runs[uid] = None
        else:
            self._runs[uid] = deleted

    def forget(self, uids: Iterable[str]) -> None:
        """Drops runs whose records were deleted."""
        for uid in uids:
            self._runs.pop(uid, None)

    async def all(self) -> list[DeletedRun]:
        """Returns all of them, in order of their uids.

        One whose record is damaged is left out, with a warning.
        """
        async with self._lock:
            unread = [uid for uid, known in self._runs.items() if known is None]
            async for uid, record in in_batches(
                each_of(unread), lambda uid: self._records.read(deleted_key(uid))
            ):
                if record is None:
                    continue
                try:
                    self._runs[uid] = decode_record(_decoder, deleted_key(uid), record)
                except DamagedRecordError as e:
                    log.warning("bills leave out what deleted run %s paid: %s", uid, e)
        return [known for known in self._runs.values() if known is not None]

    def __contains__(self, uid: object) -> bool:
        """Whether a run was deleted."""
        return uid in self._runs


_decoder = msgspec.json.Decoder(DeletedRun)
