"""The agent: what a worker is made of, put together, and its end.

It runs no engine itself. It connects, takes up what it is told to hold, keeps hosts and caches, and
goes on whatever happens to a host.
"""

import asyncio
import contextlib
import logging
import os
import time
import uuid

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import (
    PROTOCOL_VERSION,
    Component,
    Desired,
    EngineInstanceState,
    Hello,
    WorkerShape,
)
from flowmesh_core.units import Digest
from flowmesh_store.blobs import Blobs
from flowmesh_store.cache.caching_blobs import CachingBlobs
from flowmesh_worker.agent.attempts import HeldAttempts
from flowmesh_worker.agent.checkpoints import Checkpoints
from flowmesh_worker.agent.connection import GatewayConnection, OrphanedError
from flowmesh_worker.agent.report_buffer import ReportBuffer
from flowmesh_worker.data.components import ComponentCache
from flowmesh_worker.data.inputs import Inputs
from flowmesh_worker.data.outputs import Outputs
from flowmesh_worker.energy import EnergyMeter, EnergyShares
from flowmesh_worker.engines.registry import Engines
from flowmesh_worker.health import Health
from flowmesh_worker.instances.heartbeat_watch import watch_heartbeats
from flowmesh_worker.instances.instance import EngineInstance
from flowmesh_worker.instances.instances import EngineInstances
from flowmesh_worker.instances.memory_budget import MemoryBudget
from flowmesh_worker.instances.memory_watch import WATCH_EVERY_S, watch_memory
from flowmesh_worker.instances.prewarm import Prewarmer
from flowmesh_worker.instances.scratch import Scratch
from flowmesh_worker.settings import WorkerSettings
from flowmesh_worker.shape import Devices

_ACKNOWLEDGED_WITHIN_S = 5.0
_GOODBYE_WITHIN_S = 2.0
_HOSTS_END_WITHIN_S = 3.0
_log = logging.getLogger(__name__)


def since_boot_s() -> float:
    """Seconds on a clock that nobody sets and that goes on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Agent:
    """One worker."""

    def __init__(
        self,
        settings: WorkerSettings,
        shape: WorkerShape,
        engines: Engines,
        blobs: Blobs,
        *,
        devices: Devices | None = None,
        meter: EnergyMeter | None = None,
    ) -> None:
        """Takes what it is told, what it is, and the store."""
        self._settings = settings
        self._shape = shape
        self._started_s, self._born_s = time.time(), since_boot_s()
        self._incarnation = uuid.uuid4().hex
        self._held = ReportBuffer()
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()
        settings.cache_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._scratch = Scratch(settings.cache_dir / "run", self._incarnation)
        self._cache = CachingBlobs(
            blobs, settings.cache_dir / "blobs", budget_bytes=settings.cache_bytes // 2
        )
        self._components = ComponentCache(
            blobs,
            settings.cache_dir / "trees",
            settings.cache_bytes // 2,
            in_use=lambda: [d for d, _ in self._loaded()],
            on_change=self._held.components_changed,
        )
        budget = MemoryBudget(
            settings.memory_mib,
            devices.count if devices else 0,
            devices.memory_mib if devices else 0,
        )
        self._lanes = EngineInstances(
            engines, budget, settings.cpus, self._scratch.path, self._lanes_changed
        )
        self._openings = Prewarmer(
            engines,
            self._components,
            self._lanes,
            may_open=lambda: self._connection.connected and not self._stopping.is_set(),
            fetching=lambda: self._attempts.fetching,
        )
        self._outputs = Outputs(self._cache)
        self._attempts = HeldAttempts(
            self._held,
            engines,
            Inputs(self._cache, self._components),
            self._lanes,
            self._outputs,
            EnergyShares(meter, settings.power_w),
            Checkpoints(self._cache, self._scratch.path, self._held),
            self._openings.attempt_moved,
        )
        self._health = Health(settings.health_dir)
        self._connection = GatewayConnection(
            settings.gateway,
            self._held,
            self,
            self._hello,
            settings.read_token,
            settings.orphan_timeout_s,
            settings.gateway_ca,
            self._health.mark_ready,
        )

    def stop(self) -> None:
        """Drains and leaves; said twice, it hands everything back at once."""
        if self._stopping.is_set():
            self._at_once.set()
        self._stopping.set()

    async def run(self) -> None:
        """Works until stopped, drained or orphaned.

        Raises:
            RefusedForGoodError: the control plane does not want this worker.
        """
        loop = asyncio.get_running_loop()
        connection = loop.create_task(self._connection.run())
        memory = loop.create_task(watch_memory(lambda: self._lanes, WATCH_EVERY_S))
        heartbeats = loop.create_task(
            watch_heartbeats(lambda: self._lanes, self._held.lanes_changed)
        )
        stopping = loop.create_task(self._stopping.wait())
        beating = loop.create_task(self._health.touch_periodically())
        try:
            await asyncio.wait([connection, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not connection.done():
                await self._drain()
                await self._connection.close(_GOODBYE_WITHIN_S)
                connection.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                try:
                    await connection
                except OrphanedError as error:
                    _log.warning("%s", error)
        finally:
            stopping.cancel()
            memory.cancel()
            heartbeats.cancel()
            beating.cancel()
            await self._openings.close()
            self._attempts.hand_back(running=True)
            await self._lanes.close(_HOSTS_END_WITHIN_S)
            self._scratch.remove()

    def follow(self, desired: Desired) -> None:
        """As :meth:`Worker.follow`."""
        for attempt_id in desired.acknowledged:
            self._held.acknowledge(attempt_id)
        if desired.everything:
            wanted = {*desired.keep, *(a.attempt_id for a in desired.assign)}
            for attempt_id in self._attempts.ids():
                if attempt_id not in wanted:
                    self._attempts.stop(
                        attempt_id, FailureKind.CANCELLED, "nobody wants this attempt any more"
                    )
        for assignment in desired.assign:
            self._attempts.start(assignment)
        for attempt_id in desired.cancel:
            self._attempts.stop(attempt_id, FailureKind.CANCELLED, "the attempt was cancelled")
        if desired.drain:
            self._stopping.set()
        if desired.hold_open is not None:
            self._lanes.prepared.allow()
            self._openings.told(desired.hold_open)
        elif desired.everything:
            self._openings.go_on()  # what waited for this connection

    def lanes(self) -> tuple[EngineInstanceState, ...]:
        """As :meth:`WorkerReport.lanes`."""
        return self._lanes.report()

    def components(self) -> tuple[Component, ...]:
        """As :meth:`WorkerReport.components`."""
        return self._components.report(self._loaded())

    def metrics(self) -> dict[str, float]:
        """As :meth:`WorkerReport.metrics`."""
        counts = {f"attempts_{k}": float(v) for k, v in self._attempts.counts.items()}
        return {
            **counts,
            "held": float(len(self._held.progress)),
            "lanes": float(len(self._lanes.report())),
            "stored_bytes": float(self._outputs.stored_bytes),
            "uptime_s": since_boot_s() - self._born_s,
            "agent_cpu_s": sum(os.times()[:2]),
        }

    async def _drain(self) -> None:
        self._held.drain()
        self._openings.told(())  # nothing is fetched any more beside what is to be stored
        await self._lanes.prepared.close()
        self._attempts.hand_back(running=False)
        # What ends within half of the period does; the other half is for storing checkpoints.
        half_s = self._settings.grace_s / 2
        self._attempts.wind_down(within_s=half_s)
        if not await self._left(half_s):
            self._attempts.wind_down(within_s=0.0)
            await self._left(half_s)
        self._attempts.hand_back(running=True)
        await self._attempts.none_left.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ACKNOWLEDGED_WITHIN_S):
                await self._held.nothing_to_acknowledge()

    async def _left(self, within_s: float) -> bool:
        """Waits until no attempt is left; not longer than told, nor after a second stop."""
        loop = asyncio.get_running_loop()
        waits = [
            loop.create_task(self._attempts.none_left.wait()),
            loop.create_task(self._at_once.wait()),
        ]
        done, _ = await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return bool(done)

    def _hello(self, epoch: int) -> Hello:
        return Hello(
            version=PROTOCOL_VERSION,
            token=self._settings.read_token(),
            epoch=epoch,
            incarnation=self._incarnation,
            started_s=self._started_s,
            shape=self._shape,
            held=tuple(self._held.progress.values()),
            ended=tuple(self._held.ended.values()),
            lanes=self.lanes(),
            components=self.components(),
            draining=self._held.draining,
            checkpoints=tuple(self._held.checkpoints.values()),
            age_s=since_boot_s() - self._born_s,
        )

    def _lanes_changed(self, lane: EngineInstance) -> None:
        self._held.lanes_changed()
        self._held.components_changed()
        self._openings.lane_changed(lane)

    def _loaded(self) -> list[tuple[Digest, str]]:
        return [
            (component.digest, "device" if lane.reservation.devices else "host")
            for lane in self._lanes
            if not lane.gone
            for component in lane.components.values()
        ]
