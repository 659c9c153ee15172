"""Collections of the store: what they delete, when the leader begins them, and what they found.

Called by the API for ``fmesh cache gc``, and by itself while the control plane leads.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import msgspec

from flowmesh_api.v1.fabric import CollectionReport
from flowmesh_control.cache.admin import CacheAdmin
from flowmesh_control.cache.log_retention import LogRetention
from flowmesh_control.cache.result_uses import ResultUses
from flowmesh_control.cache.run_retention import RunRetention
from flowmesh_control.collection_settings import CollectionSettings
from flowmesh_control.loop.clock import Clock
from flowmesh_control.metrics.collection_meter import CollectionMeter
from flowmesh_control.records.epochs import SupersededError
from flowmesh_core.errors import (
    FlowMeshError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
)
from flowmesh_core.units import bytes_text

log = logging.getLogger("flowmesh.control")

FIRST_SHARE = 0.1
"""The first collection comes after this share of the interval: a laptop may not run for long."""


class StoreCollection:
    """Deletes what nothing needs any more, on demand and at intervals."""

    def __init__(
        self,
        *,
        settings: CollectionSettings,
        cache: CacheAdmin,
        runs: RunRetention,
        request_log: LogRetention,
        uses: ResultUses,
        meter: CollectionMeter,
        leads: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """Keeps its parts.

        Args:
            settings: when, and what stays.
            cache: expires and evicts results, and deletes blobs.
            runs: deletes the records of old runs.
            request_log: deletes its old segments.
            uses: when results were last used.
            meter: counts collections.
            leads: raises where another control plane leads.
            clock: Unix time in seconds.
        """
        self._meter = meter
        self._settings = settings
        self._cache = cache
        self._runs = runs
        self._request_log = request_log
        self._uses = uses
        self._leads = leads
        self._clock = clock
        self._lock = asyncio.Lock()

    async def collect(self, *, dry_run: bool) -> CollectionReport:
        """Deletes old runs, expired results, results above the bound, and their blobs.

        Another collection is waited for.

        Raises:
            StoreError: something could not be read or deleted; what was deleted stays deleted.
        """
        async with self._lock:
            if dry_run:
                return await self._collect(dry_run=True)
            self._meter.under_way, began_s = True, time.monotonic()
            try:
                report = await self._collect(dry_run=False)
            except BaseException:
                self._meter.ended["failed"] += 1
                raise
            finally:
                self._meter.under_way = False
            self._meter.add(report, now_s=self._clock(), took_s=time.monotonic() - began_s)
            return report

    async def run(self) -> None:
        """Collects at every interval until cancelled; a failure is logged, and tried again then.

        Raises:
            SupersededError: another control plane leads.
        """
        if not self._settings.interval_s:
            return
        if self._settings.bytes_max:
            await self._load_uses()
        await asyncio.sleep(FIRST_SHARE * self._settings.interval_s)
        while True:
            try:
                await self._leads()
                report = await self.collect(dry_run=False)
            except SupersededError:
                raise
            except FlowMeshError as e:
                log.warning("a collection failed, the next one tries again: %s", e)
            else:
                log.info(
                    "collected %d blobs (%s), %d results and %d runs",
                    report.deleted,
                    bytes_text(report.deleted_bytes),
                    report.expired_results + report.evicted_results,
                    report.expired_runs,
                )
                for text in report.unreadable_runs:
                    log.warning("%s", text)
            await asyncio.sleep(self._settings.interval_s)

    async def _collect(self, *, dry_run: bool) -> CollectionReport:
        runs = await self._runs.expire(dry_run=dry_run)
        report = await self._cache.collect(dry_run=dry_run)
        evicted, bytes_max = 0, self._settings.bytes_max
        used_bytes = report.live_bytes + report.result_bytes
        if 0 < bytes_max < used_bytes and not report.unreadable_runs:
            evicted = await self._cache.evict(
                used_bytes=used_bytes, bytes_max=bytes_max, dry_run=dry_run
            )
            if not dry_run:
                report = _sum(report, await self._cache.collect(dry_run=False))
        segments = await self._request_log.expire(dry_run=dry_run)
        if bytes_max and not dry_run:
            await self._save_uses()
        return msgspec.structs.replace(
            report,
            expired_runs=runs,
            evicted_results=evicted,
            expired_log_segments=segments,
        )

    async def _load_uses(self) -> None:
        try:
            await self._uses.load()
        except StoreError as e:
            log.warning("when results were last used is not known: %s", e)

    async def _save_uses(self) -> None:
        """Writes the uses; on a full disk the next collection does."""
        try:
            await self._uses.save()
        except (StoreFullError, StoreUnavailableError) as e:
            log.warning("when results were last used is not written: %s", e)


def _sum(first: CollectionReport, second: CollectionReport) -> CollectionReport:
    """Returns two collections, one right after the other, as one."""
    return msgspec.structs.replace(
        second,
        blobs=first.blobs,
        size_bytes=first.size_bytes,
        deleted=first.deleted + second.deleted,
        deleted_bytes=first.deleted_bytes + second.deleted_bytes,
        expired_results=first.expired_results + second.expired_results,
        unfinished=first.unfinished + second.unfinished,
    )
