"""The request log of a leader: gathers entries in memory and writes them each second.

While the store cannot be written, entries wait in memory up to a bound; beyond it they are counted,
and the next segment says how many were lost. Requests that destroy something are logged before they
are carried out, and refused while that is not possible.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from flowmesh_api.v1.request_log import LogEntry
from flowmesh_control.loop.clock import Clock
from flowmesh_control.request_log.chain import ChainWriter
from flowmesh_control.request_log.counts import CountedRequest, RequestCounts
from flowmesh_control.request_log.segments import SegmentLink
from flowmesh_core.errors import FlowMeshError, StoreFullError, StoreUnavailableError

log = logging.getLogger("flowmesh.request_log")

PENDING_BYTES_MAX = 16 << 20
SEGMENT_BYTES_MAX = 1 << 20
WRITTEN_WITHIN_S = 10.0
"""How long a request that destroys something waits for its entry to be written."""


class RequestLogError(StoreUnavailableError):
    """The request cannot be logged, and is therefore not carried out."""


class RequestLog:
    """Entries on their way to the store.

    Attributes:
        written: entries in the store, of this leader.
        lost: entries that were dropped.
    """

    def __init__(
        self,
        chain: ChainWriter | None,
        *,
        clock: Clock,
        flush_s: float,
        failed: Callable[[FlowMeshError], None],
        enabled: bool = True,
    ) -> None:
        """Keeps the arguments.

        Args:
            chain: where entries are written; None where the store is read-only.
            clock: Unix time in seconds.
            flush_s: how often entries are written.
            failed: called with the error of each write that will be tried again.
            enabled: False ignores every entry.
        """
        self.written = 0
        self.lost = 0
        self._chain = chain if enabled else None
        self._clock = clock
        self._flush_s = flush_s
        self._failed = failed
        self._enabled = enabled
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._unreported = 0
        self._writing: tuple[list[bytes], int] = ([], 0)
        self._counts = RequestCounts()
        self._lock = asyncio.Lock()

    @property
    def pending(self) -> int:
        """The number of entries that wait to be written."""
        return len(self._pending)

    @property
    def last(self) -> SegmentLink | None:
        """The newest segment, as far as this leader knows."""
        return None if self._chain is None else self._chain.last

    def now_s(self) -> float:
        """Returns Unix time in seconds."""
        return self._clock()

    def add(self, entry: LogEntry) -> None:
        """Adds an entry, which is written within a second."""
        if not self._enabled:
            return
        line = msgspec.json.encode(entry)
        if log.isEnabledFor(logging.INFO):
            log.info("%s", line.decode())
        if self._chain is None:
            return
        if self._pending_bytes + len(line) > PENDING_BYTES_MAX:
            self.lost += 1
            self._unreported += 1
            return
        self._pending.append(line)
        self._pending_bytes += len(line)

    def count(self, request: CountedRequest) -> None:
        """Counts a plain read."""
        if self._enabled:
            self._counts.add(request, self._clock())

    def add_refusal(self, entry: LogEntry) -> None:
        """Adds the entry of a refused request; counts it where its user has too many of them."""
        if not self._enabled:
            return
        about = entry.object_ref
        of = entry.user.username or "".join(entry.source_ips)
        if self._counts.admits_refusal(of, self._clock()) or about is None:
            self.add(entry)
            return
        code = 0 if entry.response_status is None else entry.response_status.code
        counted = CountedRequest(entry.user, about.namespace, entry.verb, about.resource, code)
        self._counts.add(counted, self._clock())

    async def write_now(self) -> None:
        """Returns when all entries are in the store; at once where the log is not stored.

        Raises:
            RequestLogError: the store does not answer, or may not be written.
            StoreFullError: it is full.
        """
        try:
            async with asyncio.timeout(WRITTEN_WITHIN_S):
                await self.flush()
        except StoreFullError as e:
            self._failed(e)
            raise
        except (FlowMeshError, TimeoutError) as e:
            if isinstance(e, FlowMeshError):
                self._failed(e)
            raise RequestLogError(
                "the request log cannot be written, and this request is logged before it is "
                f"carried out: {str(e) or 'the store does not answer'}",
                where="request-log",
                remedy="see that the store can be written, then send the request again",
            ) from e

    async def flush(self) -> None:
        """Writes the entries that wait.

        Raises:
            StoreError: those that were not written still wait.
        """
        chain = self._chain
        if chain is None:
            return
        async with self._lock:
            self._add_counts()
            while self._pending or self._unreported:
                await chain.begin()
                if not chain.is_writing:
                    self._writing = self._batch(), self._unreported
                    chain.prepare(*self._writing)
                await chain.finish()
                self._settle(*self._writing)

    async def run(self) -> None:
        """Writes entries each second until cancelled."""
        while True:
            await asyncio.sleep(self._flush_s)
            try:
                await self.flush()
            except FlowMeshError as e:
                self._failed(e)

    async def close(self) -> None:
        """Writes everything one last time; reads alone are not worth a first segment."""
        chain = self._chain
        if chain is None or not (chain.begun or self._pending or self._unreported):
            return
        self._add_counts(unfinished=True)
        try:
            async with asyncio.timeout(WRITTEN_WITHIN_S):
                await self.flush()
        except (FlowMeshError, TimeoutError) as e:
            log.warning("%d entries of the request log were not written: %s", self.pending, e)

    def _add_counts(self, *, unfinished: bool = False) -> None:
        for entry in self._counts.take(self._clock(), unfinished=unfinished):
            self.add(entry)

    def _batch(self) -> list[bytes]:
        """Returns the entries of the next segment."""
        size, count = 0, 0
        for line in self._pending:
            size += len(line)
            if count and size > SEGMENT_BYTES_MAX:
                break
            count += 1
        return self._pending[:count]

    def _settle(self, batch: list[bytes], lost: int) -> None:
        """Forgets the entries of a segment that is in the store."""
        del self._pending[: len(batch)]
        self._pending_bytes -= sum(map(len, batch))
        self._unreported -= lost
        self.written += len(batch)
