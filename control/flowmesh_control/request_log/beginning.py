"""``request-log/beginning``: where the chain begins since older segments were deleted.

It is written and signed before they are deleted, so that a chain whose first segments somebody else
removed is told from one whose first segments had expired.
"""

from collections.abc import Sequence

import msgspec

from flowmesh_api.v1.keys import PublicKey
from flowmesh_control.records.keys import REQUEST_LOG_BEGINNING
from flowmesh_control.request_log.segments import SegmentLink
from flowmesh_control.request_log.signatures import SignatureError, Signer, verified_payload
from flowmesh_core.decoding import decode
from flowmesh_store.ports import RecordStore

PAYLOAD_TYPE = "application/vnd.flowmesh.request-log-beginning.v1+json"


async def read_beginning(records: RecordStore, keys: Sequence[PublicKey]) -> SegmentLink | None:
    """Returns the first segment of the chain; None where none was ever deleted.

    Raises:
        SignatureError: the record was changed.
    """
    record = await records.read(REQUEST_LOG_BEGINNING)
    if record is None:
        return None
    payload = verified_payload(record.data, PAYLOAD_TYPE, keys)
    try:
        return decode(_decoder, payload)
    except msgspec.DecodeError as e:
        raise SignatureError(f"it cannot be read: {e}") from e


async def write_beginning(records: RecordStore, signer: Signer, first: SegmentLink) -> None:
    """States which segment is the first.

    Raises:
        StoreError: it could not be written.
    """
    document = signer.sign(msgspec.json.encode(first) + b"\n", PAYLOAD_TYPE)
    record = await records.read(REQUEST_LOG_BEGINNING)
    etag = None if record is None else record.etag
    await records.write(REQUEST_LOG_BEGINNING, document, if_match=etag)


_decoder = msgspec.json.Decoder(SegmentLink)
