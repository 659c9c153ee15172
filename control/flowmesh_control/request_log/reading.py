"""Reads entries of the request log by pages; called by the API."""

from dataclasses import dataclass

from flowmesh_api.v1.keys import PublicKey
from flowmesh_api.v1.request_log import LogEntry, RequestLogCheck, RequestLogPage
from flowmesh_control.records.keys import REQUEST_LOG
from flowmesh_control.request_log.public_keys import PublicKeys
from flowmesh_control.request_log.request_log import RequestLog
from flowmesh_control.request_log.segments import decode_entries, parse_log_key, read_segment
from flowmesh_control.request_log.signatures import SignatureError
from flowmesh_control.request_log.verification import check_log
from flowmesh_core.errors import FlowMeshError
from flowmesh_store.batched_requests import AT_ONCE, each_of, in_batches
from flowmesh_store.ports import Records

PAGE_ENTRIES = 1000
PAGE_SEGMENTS = 32 * AT_ONCE
"""A page ends after about so many entries, or after so many segments."""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which entries are wanted.

    Attributes:
        since: a time as in the entries; earlier ones are left out.
        user: only this user's; all where empty.
        namespace: only those about this namespace; all where empty.
        after: the ``next`` of the previous page; empty for the first.
    """

    since: str = ""
    user: str = ""
    namespace: str = ""
    after: str = ""

    def matches(self, entry: LogEntry) -> bool:
        """Whether an entry is wanted."""
        about = entry.object_ref
        return (
            entry.stage_timestamp >= self.since
            and self.user in ("", entry.user.username)
            and self.namespace in ("", "" if about is None else about.namespace)
        )


class RequestLogReader:
    """Reads and checks what is stored."""

    def __init__(self, records: Records, keys: PublicKeys, log: RequestLog) -> None:
        """Keeps the arguments.

        Args:
            records: of the store, without the check of seals.
            keys: the public keys of the store.
            log: of this leader.
        """
        self._records = records
        self._keys = keys
        self._log = log

    async def public_keys(self) -> tuple[PublicKey, ...]:
        """Returns the keys that verify the log."""
        return await self._keys.all()

    async def check(self) -> RequestLogCheck:
        """Checks the whole log, with what this leader has written."""
        last = self._log.last
        return await check_log(self._records, await self._keys.all(), last=last)

    async def page(self, query: LogQuery) -> RequestLogPage:
        """Returns the next page of the entries that a query wants, oldest first.

        Raises:
            FlowMeshError: the cursor is not one.
        """
        if query.after and parse_log_key(query.after) is None:
            raise FlowMeshError(
                f"{query.after[:80]!r} is not a page cursor",
                where="?after=",
                remedy="use `next` of the previous page, or leave it out for the first page",
            )
        keys = await self._keys_of(query)
        return await self._read(keys, query)

    async def _keys_of(self, query: LogQuery) -> list[str]:
        """Returns the keys of the segments that may have wanted entries.

        Days in keys never go back, so earlier folders have none.
        """
        first_day = max(query.since[:10], query.after.removeprefix(REQUEST_LOG)[:10])
        found = []
        async for day in self._records.folders(REQUEST_LOG):
            if day >= first_day:
                async for key in self._records.keys(f"{REQUEST_LOG}{day}/"):
                    position = parse_log_key(key)
                    if position is not None:
                        found.append((position, key))
        after = parse_log_key(query.after)
        return [key for position, key in sorted(found) if after is None or position > after]

    async def _read(self, keys: list[str], query: LogQuery) -> RequestLogPage:
        entries: list[LogEntry] = []
        bad: list[str] = []
        last, public_keys, position = query.after, await self._keys.all(), 0
        while position < min(len(keys), PAGE_SEGMENTS) and len(entries) < PAGE_ENTRIES:
            some = keys[position : position + AT_ONCE]
            async for key, record in in_batches(each_of(some), self._records.read):
                last = key
                try:
                    found = None if record is None else read_segment(key, record.data, public_keys)
                except SignatureError:
                    bad.append(key)
                else:
                    lines = () if found is None else found.entries
                    entries += filter(query.matches, decode_entries(lines))
            position += len(some)
        return RequestLogPage(tuple(entries), last, position >= len(keys), tuple(bad))
