"""The record that says how a store's content is named and laid out.

The control plane reads it before it leads. A store of another identity scheme is refused: none of
its results could be found, and its references and unfinished runs name content by other digests. So
is one of another layout: its blobs belong to no scope (ADR 43).
"""

import msgspec

from flowmesh_control.records.epochs import last_epoch
from flowmesh_control.records.keys import STORE_FORMAT
from flowmesh_control.records.run_records import decode_record
from flowmesh_core.errors import ConditionFailedError, StoreError
from flowmesh_core.identity import SCHEME
from flowmesh_store.ports import RecordStore

LAYOUT = 2
"""Of blobs: below ``cas/<scope>/``; layout 1 was ``cas/`` for all scopes."""
_FIRST = 1
"""Scheme and layout of the releases that did not write them."""
_REMEDY = (
    "start with an empty folder or bucket; or use the release that wrote this one, to read what is"
    " there"
)


class StoreFormat(msgspec.Struct, frozen=True, rename="camel"):
    """``format``: written once, before the first leadership."""

    identity_scheme: int
    layout: int = _FIRST


_decoder = msgspec.json.Decoder(StoreFormat)


async def require_format(records: RecordStore) -> bool:
    """Checks that a store is of this release's identity scheme and layout.

    Returns:
        Whether it says so; False for a store that no control plane has used.

    Raises:
        StoreError: it is of another scheme or layout.
        DamagedRecordError: the record cannot be read.
    """
    record = await records.read(STORE_FORMAT)
    if record is not None:
        found = decode_record(_decoder, STORE_FORMAT, record, remedy=_REMEDY)
    elif await last_epoch(records):
        found = StoreFormat(_FIRST)
    else:
        return False
    if found.identity_scheme != SCHEME:
        raise _refused("content is named by identity scheme", found.identity_scheme, SCHEME)
    if found.layout != LAYOUT:
        raise _refused("blobs have layout", found.layout, LAYOUT)
    return True


def _refused(what: str, found: int, ours: int) -> StoreError:
    return StoreError(
        f"its {what} {found}; this release has {ours}", where=STORE_FORMAT, remedy=_REMEDY
    )


async def begin_format(records: RecordStore) -> None:
    """Writes the record in a store that no control plane has used.

    Raises:
        StoreError: as :func:`require_format`, or it could not be written.
    """
    if await require_format(records):
        return
    try:
        await records.write(STORE_FORMAT, msgspec.json.encode(StoreFormat(SCHEME, LAYOUT)))
    except ConditionFailedError:  # another control plane was faster
        await require_format(records)
