"""Bounds what a namespace stores in the blob area of its own scope.

The area is listed when a leader starts, every six hours, after a collection, and where a namespace
would be refused. In between the sizes of uploads and of published results are added as if nothing
of them were stored already: the sum is too large until the next listing and never too small, except
for what workers put without publishing it. Nothing is counted for a namespace without a quota.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from flowmesh_api.v1.quotas import Quota
from flowmesh_control.errors import QuotaExceededError
from flowmesh_control.quotas.quotas import Quotas
from flowmesh_core.errors import StoreError, StoreUnavailableError
from flowmesh_core.protocol.results import ActionResult
from flowmesh_core.sharing.scopes import namespace_scope
from flowmesh_core.units import bytes_text
from flowmesh_store.ports import StoredBlob

log = logging.getLogger("flowmesh.control")

COUNT_EVERY_S = 6 * 3600.0
CHECK_EVERY_S = 30.0
RECOUNT_S = 60.0
"""Seconds between two listings of an area that is full, at least."""
RECOUNT_SHARE = 20
"""Such a listing begins no sooner than this many times as long as the last one took after it."""
HOLD_PERCENT = 110
"""From here on new attempts of the namespace wait; below, those of accepted runs may end."""
LIMIT = "stored-bytes"
_REMEDY = "delete runs or ask an administrator"


class ListedBlobs(Protocol):
    """The blobs of a store, by scope."""

    def blobs(self, scope: str = "") -> AsyncIterator[StoredBlob]:
        """As :meth:`Sweepable.blobs`."""
        ...


@dataclass(slots=True, eq=False)
class _Area:
    """What is known of a namespace's blob area.

    Attributes:
        size_bytes: at the last listing, with what was added since; ``added`` is that part of it.
        counted_s: when it was last listed; minus infinity where it never was.
        took_s: how long that took.
    """

    size_bytes: int = 0
    added: int = 0
    counted_s: float = float("-inf")
    took_s: float = 0.0
    counting: asyncio.Lock = field(default_factory=asyncio.Lock)


class StoredBytes:
    """The bytes that namespaces with a quota store."""

    def __init__(
        self, quotas: Quotas, blobs: ListedBlobs, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Starts without any count.

        Args:
            quotas: those in force.
            blobs: lists the store.
            clock: seconds that never go back.
        """
        self._quotas = quotas
        self._blobs = blobs
        self._clock = clock
        self._areas: dict[str, _Area] = {}
        self._wake = asyncio.Event()
        quotas.listen(self._wake.set)

    def used(self, namespace: str) -> int:
        """Returns what a namespace stores, as far as that was counted."""
        area = self._areas.get(namespace_scope(namespace))
        return 0 if area is None else area.size_bytes

    def added(self, scope: str, size_bytes: int) -> None:
        """Counts content that was stored in a scope."""
        area = self._areas.get(scope)
        if area is not None:
            area.size_bytes += size_bytes
            area.added += size_bytes

    def published(self, scope: str, result: ActionResult) -> None:
        """Counts the outputs of a result that was published in a scope."""
        if scope in self._areas:
            self.added(scope, sum(a.size_bytes for a in result.outputs.values()))

    def is_full(self, namespace: str) -> bool:
        """Whether a namespace stores as much as its quota allows."""
        quota = self._quotas.of(namespace)
        return quota is not None and self.used(namespace) >= quota.stored_bytes

    def check(self, namespace: str) -> None:
        """Refuses more content for a namespace that stores as much as it may.

        Raises:
            QuotaExceededError: with what it stores, and may store.
        """
        quota = self._quotas.of(namespace)
        if quota is not None and self.is_full(namespace):
            self._quotas.refusals[LIMIT] += 1
            raise QuotaExceededError(self._text(namespace, quota), remedy=_REMEDY, can_pass=True)

    async def recount_if_full(self, namespace: str) -> None:
        """Lists the area of a namespace that seems full, unless that was done a short time ago."""
        if self.is_full(namespace) and self._is_stale(namespace):
            await self._count(namespace)

    def recount_all(self) -> None:
        """Has every area listed soon, as after a collection."""
        for area in self._areas.values():
            area.counted_s = float("-inf")
        self._wake.set()

    async def run(self) -> None:
        """Keeps the counts, and what waits for them, up to date until cancelled."""
        while True:
            self._wake.clear()
            try:
                await self.update()
            except (StoreUnavailableError, StoreError) as e:
                log.warning("what namespaces store cannot be counted now: %s", e)
            try:
                async with asyncio.timeout(CHECK_EVERY_S):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def update(self) -> None:
        """Lists the areas whose time has come; holds the namespaces that store too much."""
        namespaces = self._quotas.namespaces
        scopes = {namespace_scope(n) for n in namespaces}
        self._areas = {scope: a for scope, a in self._areas.items() if scope in scopes}
        for namespace in namespaces:
            if self._is_due(namespace):
                await self._count(namespace)
        texts = {}
        for namespace in namespaces:
            quota = self._quotas.of(namespace)
            if quota is not None and self._holds_attempts(namespace, quota):
                text = self._text(namespace, quota)
                texts[namespace] = f"{text}; {_REMEDY}: from {HOLD_PERCENT}% on no attempt begins"
        await self._quotas.set_full(texts)

    def _is_due(self, namespace: str) -> bool:
        area = self._areas.get(namespace_scope(namespace))
        if area is None or self._clock() - area.counted_s >= COUNT_EVERY_S:
            return True
        return self.is_full(namespace) and self._is_stale(namespace)

    def _is_stale(self, namespace: str) -> bool:
        area = self._areas.get(namespace_scope(namespace))
        if area is None:
            return True
        return self._clock() - area.counted_s >= max(RECOUNT_S, RECOUNT_SHARE * area.took_s)

    def _holds_attempts(self, namespace: str, quota: Quota) -> bool:
        return 100 * self.used(namespace) >= HOLD_PERCENT * max(1, quota.stored_bytes)

    async def _count(self, namespace: str) -> None:
        """Lists an area; callers that come meanwhile wait for the same listing."""
        scope = namespace_scope(namespace)
        area = self._areas.setdefault(scope, _Area())
        was_counting = area.counting.locked()
        async with area.counting:
            if was_counting:
                return
            begun_s, area.added = self._clock(), 0
            size_bytes = 0
            async for blob in self._blobs.blobs(scope):
                size_bytes += blob.size_bytes
            area.counted_s = self._clock()
            area.took_s = area.counted_s - begun_s
            area.size_bytes = size_bytes + area.added

    def _text(self, namespace: str, quota: Quota) -> str:
        used, most = bytes_text(self.used(namespace)), bytes_text(quota.stored_bytes)
        return f"namespace {namespace} stores {used}, of at most {most}"
