"""The segments of the request log: their keys, their form, and their place in the chain.

``request-log/<day>/<epoch>-<seq>.jsonl`` has a line with the header, a line for each entry, and a
line with the signature over all lines before it. The header names the segment itself and the one
before it with its blake3, so that a segment that was changed, moved or removed breaks the chain.
Segments are written once.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
from blake3 import blake3

from flowmesh_api.v1.keys import PublicKey
from flowmesh_api.v1.request_log import LogEntry
from flowmesh_control.records.keys import REQUEST_LOG
from flowmesh_control.request_log.signatures import SignatureError, Signer, verified_payload
from flowmesh_core.decoding import decode

PAYLOAD_TYPE = "application/vnd.flowmesh.request-log.v1+jsonl"
_KEY = re.compile(
    rf"{REQUEST_LOG}([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})/([0-9]{{8}})-([0-9]{{8}})\.jsonl", re.ASCII
)


class Position(NamedTuple):
    """The place of a segment in the order of the chain."""

    epoch: int
    seq: int


class SegmentLink(msgspec.Struct, frozen=True):
    """A segment by its key and the blake3 of its bytes."""

    segment: str
    blake3: str


class SegmentHeader(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind"):
    """The first line of a segment.

    Attributes:
        segment: its own key.
        previous: the segment before it; None for the first of all.
        lost: entries that were dropped before it, because the store could not be written.
    """

    segment: str
    previous: SegmentLink | None = None
    lost: int = 0


class Segment(NamedTuple):
    """A segment whose signature is valid."""

    header: SegmentHeader
    entries: tuple[bytes, ...]


def day_of(seconds: float) -> str:
    """Returns the day of a Unix time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def log_key(day: str, position: Position) -> str:
    """Returns the key of a segment."""
    return f"{REQUEST_LOG}{day}/{position.epoch:08d}-{position.seq:08d}.jsonl"


def parse_log_key(key: str) -> Position | None:
    """Returns the place of a segment; None for a key of another form."""
    found = _KEY.fullmatch(key)
    return None if found is None else Position(int(found[2]), int(found[3]))


def link_to(key: str, data: bytes) -> SegmentLink:
    """Returns the link to a segment of these bytes."""
    return SegmentLink(key, blake3(data).hexdigest())


def make_segment(header: SegmentHeader, entries: Sequence[bytes], signer: Signer) -> bytes:
    """Returns the bytes of a segment."""
    lines = (msgspec.json.encode(header), *entries, b"")
    return signer.sign(b"\n".join(lines), PAYLOAD_TYPE)


def read_segment(key: str, data: bytes, public_keys: Sequence[PublicKey]) -> Segment:
    """Checks and returns a segment.

    Raises:
        SignatureError: it is not what the control plane wrote under this key.
    """
    payload = verified_payload(data, PAYLOAD_TYPE, public_keys)
    first, *entries = payload[:-1].split(b"\n")
    try:
        header = decode(_header_decoder, first)
    except msgspec.DecodeError as e:
        raise SignatureError(f"its header cannot be read: {e}") from e
    if header.segment != key:
        raise SignatureError(f"it was written as {header.segment[:200]}")
    return Segment(header, tuple(entries))


def decode_entries(lines: Sequence[bytes]) -> list[LogEntry]:
    """Decodes entries; lines that cannot be read, of a newer release, are left out."""
    found = []
    for line in lines:
        try:
            found.append(decode(_entry_decoder, line))
        except msgspec.DecodeError:
            continue
    return found


_header_decoder = msgspec.json.Decoder(SegmentHeader)
_entry_decoder = msgspec.json.Decoder(LogEntry)
