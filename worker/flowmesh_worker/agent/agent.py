"""Assembles a worker process: the worker agent, its shell, hosts, caches and connection.

``flowmesh_worker.__main__`` runs it. Engines run in hosts, so that a crash of one does not end the
worker. Decisions are made in ``flowmesh_core.worker_agent``, never here.
"""

import asyncio
import contextlib
import logging
import os
import time
import uuid
from collections.abc import Callable

import msgspec

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import (
    PROTOCOL_VERSION,
    Component,
    Desired,
    Hello,
    Sync,
    WorkerShape,
)
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent.machine import AgentSettings, WorkerAgent
from flowmesh_store.blobs import BlobViews
from flowmesh_store.cache.blob_cache import BlobCache
from flowmesh_store.cache.caching_blobs import CachingViews
from flowmesh_worker.agent.attempt_data import AttemptData
from flowmesh_worker.agent.checkpoints import Checkpoints
from flowmesh_worker.agent.connection import GatewayConnection, OrphanedError
from flowmesh_worker.agent.forgetting import Forgetting
from flowmesh_worker.agent.ports import ServingHub
from flowmesh_worker.agent.prewarm_data import PrewarmData
from flowmesh_worker.agent.shell import Shell
from flowmesh_worker.agent.store_watch import StoreWatch
from flowmesh_worker.data.components import ComponentCache
from flowmesh_worker.data.fetch_counter import CountedViews, StoreFetchCounter
from flowmesh_worker.data.inputs import Inputs
from flowmesh_worker.data.outputs import Outputs
from flowmesh_worker.data.verified_chunks import VerifiedChunks
from flowmesh_worker.energy import EnergyMeter, EnergyShares
from flowmesh_worker.engines.registry import Engines
from flowmesh_worker.health import Health
from flowmesh_worker.instances.engine_facts import InstalledEngines
from flowmesh_worker.instances.engine_hosts import EngineHosts
from flowmesh_worker.instances.heartbeat_watch import watch_heartbeats
from flowmesh_worker.instances.memory_watch import watch_memory
from flowmesh_worker.instances.scratch import Scratch
from flowmesh_worker.instances.standby_hosts import StandbyProcesses
from flowmesh_worker.settings import WorkerSettings
from flowmesh_worker.shape import Devices

_METRICS_EVERY_S = 2.0
_GOODBYE_WITHIN_S = 2.0
_HOSTS_END_WITHIN_S = 3.0
_OF_STORE = FailureKind.STORE.value
_log = logging.getLogger(__name__)


def since_boot_s() -> float:
    """Returns seconds of a clock that cannot be set and that counts suspended time."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Agent:
    """One worker process.

    Attributes:
        machine: makes the decisions.
        hosts: engine hosts; ``standby`` has the standby hosts.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        shape: WorkerShape,
        engines: Engines,
        store: BlobViews,
        watch: StoreWatch,
        *,
        devices: Devices | None = None,
        meter: EnergyMeter | None = None,
        hub: Callable[[Callable[[e.Event], None]], ServingHub] | None = None,
    ) -> None:
        """Connects in :meth:`run`.

        Args:
            settings: from the command line.
            shape: resources and labels that the worker reports.
            engines: the installed ones.
            store: has the content.
            watch: looks whether it can be reached.
            devices: accelerators; None on a CPU worker.
            meter: measures energy; None estimates it from the stated power.
            hub: makes the hub, which posts events to the agent; without one the worker refuses
                replicas of services.
        """
        self._settings = settings
        self._shape = shape
        self._started_s, self._born_s = time.time(), since_boot_s()
        self._incarnation = uuid.uuid4().hex
        self._code_tenant = ""
        self._metrics_due_s = 0.0
        self._health = Health(settings.health_dir)
        self._watch, self._reported_problem = watch, ""
        self._welcomed = False
        settings.cache_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._scratch = Scratch(settings.cache_dir / "run", self._incarnation)
        facts = InstalledEngines(engines)
        fetches = StoreFetchCounter()
        counted = CountedViews(store, fetches)
        self.machine = WorkerAgent(
            AgentSettings(
                memory_mib=settings.memory_mib,
                devices=devices.count if devices else 0,
                device_mib=devices.memory_mib if devices else 0,
                grace_s=settings.grace_s,
                serves=hub is not None,
                sleep_mib=settings.sleep_mib,
            ),
            facts,
            EnergyShares(meter, settings.power_w),
            fetches,
        )
        self._shell = Shell(self.machine)
        post = self._shell.post
        self._cache = BlobCache(
            settings.cache_dir / "blobs", budget_bytes=settings.cache_bytes // 2
        )
        cached = CachingViews(counted, self._cache)
        self._components = ComponentCache(
            counted,
            settings.cache_dir / "trees",
            settings.cache_bytes // 2,
            in_use=lambda: [digest for digest, _ in self._loaded()],
            on_change=self._components_changed,
        )
        self._verified = VerifiedChunks(settings.cache_dir / "verified-chunks")
        self._outputs = Outputs(cached)
        self._prewarms = PrewarmData(self._components, post)
        self._attempts = AttemptData(
            engines,
            Inputs(cached, self._components, self._verified),
            self._outputs,
            Checkpoints(cached, self._scratch.path, post),
            self._post_of_attempts,
        )
        self.hosts = EngineHosts(
            engines,
            settings.cpus,
            self._scratch,
            post,
            ended=self._attempts.ended,
            checkpoint=self._attempts.take_checkpoint,
            sleeps=settings.sleep_mib > 0,
        )
        self.standby = StandbyProcesses(
            settings.cpus,
            self._scratch,
            post,
            facts.host_preload,
            on_devices=engines.on_devices,
        )
        self._connection = GatewayConnection(
            settings.gateway,
            self,
            settings.read_token,
            settings.orphan_timeout_s,
            settings.gateway_ca,
            self._connection_changed,
        )
        self._forgetting = Forgetting(self._cache, self._components)
        self._hub = hub(post) if hub is not None else None
        self._shell.connect(
            self._attempts,
            self._prewarms,
            self.hosts,
            self.standby,
            self._connection,
            self._forgetting.begin,
            self._hub,
        )
        self._components_changed()

    def stop(self) -> None:
        """Drains the worker and leaves; a second call ends the grace period at once."""
        self._shell.post(e.StopRequested())

    async def run(self) -> None:
        """Runs until stopped, drained or orphaned.

        Raises:
            PermanentlyRefusedError: the control plane refuses this worker for good.
            InvariantError: the agent would change a state in a way that is not allowed.
        """
        await self._watch.look()
        loop = asyncio.get_running_loop()
        connection = loop.create_task(self._connection.run())
        left = loop.create_task(self._shell.left.wait())
        watches = [
            loop.create_task(watch_memory(lambda: self.hosts, self._shell.post)),
            loop.create_task(watch_heartbeats(lambda: self.hosts, self._shell.post)),
            loop.create_task(self._health.touch_periodically()),
            loop.create_task(self._watch.run(self._store_looked)),
        ]
        try:
            await asyncio.wait([connection, left], return_when=asyncio.FIRST_COMPLETED)
            if self._shell.broken is not None:
                raise self._shell.broken
            if not connection.done():
                await self._connection.close(_GOODBYE_WITHIN_S)
                connection.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                try:
                    await connection
                except OrphanedError as error:
                    _log.warning("%s", error)
        finally:
            for task in (connection, left, *watches):
                task.cancel()
            await self._close()

    # -- as a ConnectedWorker --------------------------------------------------------------------

    def hello(self, epoch: int) -> Hello:
        """See ``ConnectedWorker.hello``."""
        report = self.machine.full_report(time.monotonic())
        return Hello(
            version=PROTOCOL_VERSION,
            epoch=epoch,
            incarnation=self._incarnation,
            started_s=self._started_s,
            shape=self._shape,
            attempts=report.attempts,
            ended=report.ended,
            instances=report.instances,
            components=self._component_report(),
            draining=report.draining,
            checkpoints=report.checkpoints,
            age_s=since_boot_s() - self._born_s,
            code_tenant=self._code_tenant,
            replicas=self.machine.replica_states() if self._hub is not None else msgspec.UNSET,
            store_problem=self._problem_to_report() or msgspec.UNSET,
        )

    def sync(self, seq: int) -> Sync:
        """See ``ConnectedWorker.sync``."""
        now_s = time.monotonic()
        sync = self.machine.next_sync(seq, now_s, self._component_report)
        if now_s >= self._metrics_due_s:
            self._metrics_due_s = now_s + _METRICS_EVERY_S
            sync = msgspec.structs.replace(sync, metrics=self._metrics())
        if problem := self._problem_to_report():
            sync = msgspec.structs.replace(sync, store_problem=problem)
        return sync

    def follow(self, desired: Desired) -> None:
        """See ``ConnectedWorker.follow``."""
        if self._shape.single_tenant and not self._code_tenant:
            tenants = [a.tenant for a in desired.assign]
            tenants += [r.code_tenant for r in desired.replicas or ()]
            self._code_tenant = next(filter(None, tenants), "")
        self._shell.post(e.DesiredReceived(desired))

    # -- parts -----------------------------------------------------------------------------------

    def _connection_changed(self, connected: bool) -> None:
        self._metrics_due_s = 0.0
        if connected:
            self._welcomed = True
            self._show_health()
        self._shell.post(e.Connected() if connected else e.Disconnected())

    def _post_of_attempts(self, event: e.Event) -> None:
        if isinstance(event, e.InputsFailed | e.OutputsFailed) and event.failure.kind == _OF_STORE:
            self._watch.look_soon()
        self._shell.post(event)

    def _store_looked(self) -> None:
        if self._watch.problem != self._reported_problem:
            self._connection.report_within(0.0)
        self._show_health()

    def _problem_to_report(self) -> str:
        self._reported_problem = self._watch.problem
        return self._reported_problem

    def _show_health(self) -> None:
        if not self._watch.problem:
            if self._welcomed:
                self._health.mark_ready()
        elif not self.machine.state.attempts:
            self._health.mark_not_ready()

    def _components_changed(self) -> None:
        self._shell.post(e.ComponentsChanged(self._components.digests()))

    def _component_report(self) -> tuple[Component, ...]:
        return self._components.report(self._loaded())

    def _loaded(self) -> list[tuple[Digest, str]]:
        return [
            (component.digest, "device" if host.start.devices and not host.is_asleep else "host")
            for host in self.hosts
            for component in host.start.components.values()
        ]

    def _metrics(self) -> dict[str, float]:
        counts = {f"attempts_{k}": float(v) for k, v in self.machine.attempts.counts.items()}
        return {
            **counts,
            "attempts": float(len(self.machine.state.attempts)),
            "instances": float(len(self.machine.state.instances)),
            "stored_bytes": float(self._outputs.stored_bytes),
            "uptime_s": since_boot_s() - self._born_s,
            "agent_cpu_s": sum(os.times()[:2]),
        }

    async def _close(self) -> None:
        self._shell.close()
        await self._prewarms.close()
        await self.standby.close()
        await self._forgetting.close()
        await self._attempts.close()
        if self._hub is not None:
            await self._hub.close()
        await self.hosts.close_all(_HOSTS_END_WITHIN_S)
        self._scratch.remove()
