"""Snapshots of the learned cost model for the next start; losing one is harmless."""

import contextlib

import msgspec

from flowmesh_control.records.keys import LEARNED, learned_key, parse_epoch
from flowmesh_control.records.known_keys import known_keys
from flowmesh_core.costmodel.model import CostModel
from flowmesh_core.costmodel.state import decode_model, encode_model
from flowmesh_core.errors import ConditionFailedError
from flowmesh_store.ports import RecordStore


async def load_model(records: RecordStore) -> CostModel:
    """Returns the model that was saved last; the prior if there is none or it is unreadable."""
    last = ""
    async for key, _ in known_keys(records, LEARNED, parse_epoch):
        last = key
    record = await records.read(last) if last else None
    with contextlib.suppress(msgspec.DecodeError):
        if record is not None:
            return decode_model(record.data)
    return CostModel()


class CostModelSnapshot:
    """Saves one epoch's model."""

    def __init__(self, records: RecordStore, *, epoch: int) -> None:
        self._records = records
        self._key = learned_key(epoch)
        self._etag: str | None = None
        self._last = b""

    async def save(self, model: CostModel) -> None:
        """Saves the model if it changed since the last call."""
        data = encode_model(model)
        if data == self._last:
            return
        try:
            self._etag = await self._records.write(self._key, data, if_match=self._etag)
        except ConditionFailedError:
            found = await self._records.read(self._key)
            self._etag = None if found is None else found.etag
            return
        self._last = data
