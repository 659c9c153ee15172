"""Writes a record of an ended run that an earlier try, or a former leader, may have written."""

from flowmesh_core.errors import ConditionFailedError, StoreUnavailableError
from flowmesh_store.ports import RecordStore


async def put_last(records: RecordStore, key: str, data: bytes) -> None:
    """Puts a record in the place of whatever is there, which seldom is anything.

    Raises:
        StoreUnavailableError: it changed meanwhile, or the store did not answer; call it again.
        StoreFullError: call it again.
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
