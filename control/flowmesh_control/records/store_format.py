"""The record that says which identity scheme a store's content was named by.

The control plane reads it before it leads. A store of another scheme is refused: none of its
results could be found, and its references and unfinished runs name content by other digests.
"""

import msgspec

from flowmesh_control.records.epochs import last_epoch
from flowmesh_control.records.keys import STORE_FORMAT
from flowmesh_control.records.run_records import decode_record
from flowmesh_core.errors import ConditionFailedError, StoreError
from flowmesh_core.identity import SCHEME
from flowmesh_store.ports import RecordStore

_FIRST_SCHEME = 1
"""Of the releases that did not write this record."""
_REMEDY = (
    "start with an empty folder or bucket; or use the release that wrote this one, to read what is"
    " there"
)


class StoreFormat(msgspec.Struct, frozen=True, rename="camel"):
    """``format``: written once, before the first leadership."""

    identity_scheme: int


_decoder = msgspec.json.Decoder(StoreFormat)


async def require_format(records: RecordStore) -> bool:
    """Checks that a store is of this release's identity scheme.

    Returns:
        Whether it says so; False for a store that no control plane has used.

    Raises:
        StoreError: it is of another scheme.
        DamagedRecordError: the record cannot be read.
    """
    record = await records.read(STORE_FORMAT)
    if record is not None:
        scheme = decode_record(_decoder, STORE_FORMAT, record, remedy=_REMEDY).identity_scheme
    elif await last_epoch(records):
        scheme = _FIRST_SCHEME
    else:
        return False
    if scheme != SCHEME:
        raise StoreError(
            f"its content is named by identity scheme {scheme}; this release has scheme {SCHEME}",
            where=STORE_FORMAT,
            remedy=_REMEDY,
        )
    return True


async def begin_format(records: RecordStore) -> None:
    """Writes the record in a store that no control plane has used.

    Raises:
        StoreError: as :func:`require_format`, or it could not be written.
    """
    if await require_format(records):
        return
    try:
        await records.write(STORE_FORMAT, msgspec.json.encode(StoreFormat(SCHEME)))
    except ConditionFailedError:  # another control plane was faster
        await require_format(records)
