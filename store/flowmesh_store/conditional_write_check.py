"""Checks at start that a store implements conditional writes.

That a result is published at most once rests on them alone, and some S3 servers accept the headers
and ignore them. The control plane runs the check before it leads, and refuses a store that fails.
"""

import asyncio
import os

from flowmesh_core.errors import ConditionFailedError, StoreError
from flowmesh_store.ports import Record, RecordStore

_KEY = "proof/conditional-writes"
_ROUNDS = 8
_WRITERS = 4


async def prove_conditional_writes(records: RecordStore) -> None:
    """Writes one small record under conditions that hold and that do not.

    It is safe while others use the store or run this check too.

    Raises:
        StoreError: the store ignores a condition, and must not be used.
        StoreUnavailableError: the store did not answer.
    """
    for _ in range(_ROUNDS):
        record = await _current(records)
        if await _wins(records, None):
            raise _refused("If-None-Match: * was ignored: it wrote over an existing object")
        if await _wins(records, _other_than(record.etag)):
            raise _refused("If-Match was ignored: it wrote over another version")
        won = sum(await asyncio.gather(*(_wins(records, record.etag) for _ in range(_WRITERS))))
        if won > 1:
            raise _refused(f"If-Match is not atomic: {won} of {_WRITERS} racing writers won")
        if won == 1:
            if await _wins(records, record.etag):
                raise _refused("If-Match was ignored: it wrote over a newer version")
            return
        if await _unchanged(records, record):
            raise _refused("If-Match with the version in place was refused")
    raise _refused(f"no conditional write succeeded in {_ROUNDS} rounds")


async def _current(records: RecordStore) -> Record:
    record = await records.read(_KEY)
    if record is None:
        await _wins(records, None)
        record = await records.read(_KEY)
    if record is None:
        raise _refused("a record that was just written is not there")
    return record


async def _wins(records: RecordStore, if_match: str | None) -> bool:
    try:
        await records.write(_KEY, os.urandom(16).hex().encode(), if_match=if_match)
    except ConditionFailedError:
        return False
    return True


async def _unchanged(records: RecordStore, record: Record) -> bool:
    now = await records.read(_KEY)
    return now is not None and now.etag == record.etag


def _other_than(etag: str) -> str:
    """Returns an etag of the same form that is certainly another one."""
    return etag.translate(str.maketrans("0123456789abcdef", "123456789abcdef0"))


def _refused(reason: str) -> StoreError:
    return StoreError(
        reason,
        where="store",
        remedy="use a store with conditional writes (a directory, AWS S3, versitygw, MinIO): "
        "without them two control planes could publish the same action",
    )
