"""Checks the chain of the request log: signatures, places, and that no segment is missing.

Needs the segments and the public keys alone, so that others than the control plane can do it. What
it cannot show is that the newest segments were removed while no control plane ran; one that runs
knows the segment that it wrote last.
"""

from collections.abc import Sequence

from flowmesh_api.v1.keys import PublicKey
from flowmesh_api.v1.request_log import RequestLogCheck
from flowmesh_control.records.keys import REQUEST_LOG, REQUEST_LOG_BEGINNING
from flowmesh_control.request_log.beginning import read_beginning
from flowmesh_control.request_log.segments import (
    Position,
    Segment,
    SegmentHeader,
    SegmentLink,
    link_to,
    parse_log_key,
    read_segment,
)
from flowmesh_control.request_log.signatures import SignatureError
from flowmesh_core.errors import FlowMeshError
from flowmesh_store.batched_requests import each_of, in_batches
from flowmesh_store.ports import RecordStore


class BrokenChainError(FlowMeshError):
    """A segment that is changed, moved or missing; ``where`` is its key."""


async def check_log(
    records: RecordStore, keys: Sequence[PublicKey], *, last: SegmentLink | None = None
) -> RequestLogCheck:
    """Checks the whole log and returns the first segment that is not valid.

    Args:
        records: of the store, without the check of seals.
        keys: the public keys whose signatures count.
        last: the newest segment as the leader knows it; None where no leader runs.

    Raises:
        StoreError: the store could not be read.
    """
    segments = entries = lost = 0
    try:
        chain = _Chain(await _beginning(records, keys))
        async for key, record in in_batches(each_of(await log_keys(records)), records.read):
            position = parse_log_key(key)
            if record is None or position is None or chain.is_expired(position):
                continue
            found = _read(key, record.data, keys)
            chain.add(position, found.header, link_to(key, record.data))
            segments, entries = segments + 1, entries + len(found.entries)
            lost += found.header.lost
        chain.check_end(last)
    except BrokenChainError as e:
        return RequestLogCheck(segments, entries, lost, e.where, e.message)
    return RequestLogCheck(segments, entries, lost)


async def log_keys(records: RecordStore) -> list[str]:
    """Returns the keys of all segments, in the order of the chain."""
    found = [(parse_log_key(key), key) async for key in records.keys(REQUEST_LOG)]
    return [key for _, key in sorted((p, key) for p, key in found if p is not None)]


class _Chain:
    """The segments so far; raises :class:`BrokenChainError` for one that does not fit."""

    def __init__(self, beginning: SegmentLink | None) -> None:
        self._beginning = beginning
        at = None if beginning is None else parse_log_key(beginning.segment)
        self._began_at = at or Position(0, 0)
        self._links: dict[Position, SegmentLink] = {}
        self._newest = Position(0, 0)

    def is_expired(self, position: Position) -> bool:
        """Whether a segment is before the beginning, and about to be deleted."""
        return position < self._began_at

    def add(self, position: Position, header: SegmentHeader, link: SegmentLink) -> None:
        """Adds the next segment."""
        if self._beginning is None or self._links:
            self._check_link(position, header)
        elif link != self._beginning:
            reason = "the log begins with it, and it is missing or changed"
            raise _broken(self._beginning.segment, reason)
        self._links[position] = link
        self._newest = position

    def check_end(self, last: SegmentLink | None) -> None:
        """Checks that nothing is missing at the end, as far as that is known."""
        for expected in (last, self._beginning if not self._links else None):
            at = None if expected is None else parse_log_key(expected.segment)
            if expected is None or at is None or self.is_expired(at):
                continue
            if self._links.get(at) != expected:
                raise _broken(
                    expected.segment, "the control plane wrote it, and it is missing or changed"
                )

    def _check_link(self, position: Position, header: SegmentHeader) -> None:
        previous = header.previous
        if previous is None:
            if self._links:
                raise _broken(
                    header.segment, "it begins a new chain, although others are before it"
                )
            return
        at = parse_log_key(previous.segment)
        if at is None or at >= position:
            raise _broken(header.segment, f"it names {previous.segment[:200]} as the one before it")
        if at < self._began_at:
            return  # deleted because of its age; the beginning is pinned by its own hash
        if self._links.get(at) != previous:
            what = "changed" if at in self._links else "missing"
            raise _broken(previous.segment, f"it is {what}: {header.segment} follows it")
        # A leader that was superseded may have written after the one that its successor follows.
        is_late_branch = at.epoch < position.epoch and self._newest.epoch < position.epoch
        if at != self._newest and not is_late_branch:
            raise _broken(header.segment, f"it follows {previous.segment}, as another one does")


def _read(key: str, data: bytes, keys: Sequence[PublicKey]) -> Segment:
    try:
        return read_segment(key, data, keys)
    except SignatureError as e:
        raise _broken(key, e.message) from e


async def _beginning(records: RecordStore, keys: Sequence[PublicKey]) -> SegmentLink | None:
    try:
        return await read_beginning(records, keys)
    except SignatureError as e:
        raise _broken(REQUEST_LOG_BEGINNING, e.message) from e


def _broken(key: str, reason: str) -> BrokenChainError:
    return BrokenChainError(reason, where=key)
