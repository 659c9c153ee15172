"""Writes a record that an earlier try or an earlier leader may have written already."""

from flowmesh_core.errors import ConditionFailedError, StoreUnavailableError
from flowmesh_store.ports import RecordStore


async def overwrite(records: RecordStore, key: str, data: bytes) -> None:
    """Writes a record, replacing an existing one, which is rare.

    Raises:
        StoreUnavailableError: it changed meanwhile, or the store did not answer; try again.
        StoreFullError: try again.
    """
    try:
        await records.write(key, data)
    except ConditionFailedError:
        there = await records.read(key)
        if there is not None and there.data == data:
            return
        try:
            await records.write(key, data, if_match=None if there is None else there.etag)
        except ConditionFailedError as e:
            raise StoreUnavailableError("it changed meanwhile", where=key) from e
