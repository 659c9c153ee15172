"""The life of a leader: acquires the lease, runs control plane and controllers, stops in order."""

import asyncio
import contextlib
import logging
import os
import threading
from typing import Protocol

from flowmesh_control.control_plane import ControlPlane, Prepare
from flowmesh_control.records.suspects import record_last_death
from flowmesh_control.services import ControlPlaneServices
from flowmesh_core.errors import FlowMeshError, StoreError
from flowmesh_core.sharing.seals import Seals
from flowmesh_operator.exit_codes import OperatorExitCode
from flowmesh_operator.kube.client import KubeClient
from flowmesh_operator.kube.connection import connected
from flowmesh_operator.kube.informer_cache import InformerCache
from flowmesh_operator.kube.lease import LeadershipLostError, Lease
from flowmesh_operator.kube.loop_thread import LoopThread
from flowmesh_operator.leadership.control_plane import make_control_plane
from flowmesh_operator.leadership.initial_sync import sync_cache
from flowmesh_operator.leadership.leader_label import take_label
from flowmesh_operator.metrics import OperatorCollector
from flowmesh_operator.policies.controller import PolicyController
from flowmesh_operator.pools.controller import PoolController
from flowmesh_operator.pools.metrics import PoolCollector
from flowmesh_operator.quotas.controller import QuotaController
from flowmesh_operator.services.controller import ServiceController
from flowmesh_operator.settings import OperatorSettings
from flowmesh_operator.tasks import first
from flowmesh_operator.workflows.config_maps import ConfigMapInputs
from flowmesh_operator.workflows.controller import WorkflowController
from flowmesh_operator.workflows.status_writer import StatusWriter
from flowmesh_store.sealed_records import SealedRecords
from flowmesh_store.store import Store, open_store

log = logging.getLogger("flowmesh.operator")

BEAT_S = 1.0
END_S = 15.0
STOP_S = 5.0
"""Time for the control plane to write its ledger when it stops."""


class Controller(Protocol):
    """Reconciles objects and runs until cancelled."""

    async def run(self) -> None:
        """Runs until cancelled; an error ends the leadership."""
        ...


async def lead(
    api: KubeClient, mirror: InformerCache, settings: OperatorSettings, stop: asyncio.Event
) -> None:
    """Waits for the lease, leads until ``stop`` is set, and releases the lease.

    Args:
        api: a client without a fence.
        mirror: the informer cache that the watches fill.
        settings: the operator's settings.
        stop: ends the leadership in order.

    Raises:
        LeadershipLostError: another replica may lead now; this process must end.
        FlowMeshError: the control plane cannot start or continue.
    """
    lease, acquired_event = Lease(settings), asyncio.Event()
    loop = asyncio.get_running_loop()
    # Opened while it waits: creating the clients is slow, and a takeover should not wait for it.
    store_task = asyncio.create_task(_open_store(settings))

    def acquired() -> None:
        loop.call_soon_threadsafe(acquired_event.set)

    async def hold(stopped: asyncio.Event) -> None:
        async with connected() as client:
            try:
                await lease.hold(KubeClient(client), stopped, acquired)
            except LeadershipLostError:
                _exit_if_stuck()
                raise

    lease_thread = LoopThread("lease", hold)
    lease_task = asyncio.create_task(lease_thread.run())
    try:
        await first(acquired_event.wait(), _wait_for(lease_task), stop.wait())
        if acquired_event.is_set() and not stop.is_set():
            fenced = api.fenced(lease.check)
            leading = _run_as_leader(fenced, mirror, settings, await store_task, lease.identity)
            await first(leading, _heartbeat(lease), _wait_for(lease_task), stop.wait())
    finally:
        await lease_thread.stop()
        lease_task.cancel()
        await asyncio.gather(lease_task, return_exceptions=True)
        await _close(store_task)


async def _open_store(settings: OperatorSettings) -> Store:
    """Opens the store, and records what this pod's last process died of.

    Also where another replica leads: its next start must know.
    """
    store = await asyncio.to_thread(open_store, settings.store, grace_s=settings.collect_grace_s)
    if settings.state_folder is not None:
        try:
            seals = Seals(settings.key_ring)
            records = SealedRecords(store.records, seals, refused=lambda _: None)
            await record_last_death(records, settings.state_folder)
        except StoreError as e:  # the control plane tries again before it leads
            log.warning("the death of the last process is not recorded yet: %s", e)
    return store


async def _close(store_task: "asyncio.Task[Store]") -> None:
    (found,) = await asyncio.gather(store_task, return_exceptions=True)
    if isinstance(found, Store):
        found.close()


async def _wait_for(task: "asyncio.Task[None]") -> None:
    """Waits for a task; cancelling the wait does not cancel the task."""
    await asyncio.shield(task)


def _exit_if_stuck() -> None:
    """Exits the process after ``END_S`` if it has not ended by itself: its event loop may hang."""
    last = threading.Timer(END_S, os._exit, [OperatorExitCode.LEADERSHIP_LOST])
    last.daemon = True
    last.start()


async def _heartbeat(lease: Lease) -> None:
    while True:
        lease.beat()
        await asyncio.sleep(BEAT_S)


async def _run_as_leader(
    api: KubeClient, mirror: InformerCache, settings: OperatorSettings, store: Store, owner: str
) -> None:
    plane = make_control_plane(settings, store, api, mirror, owner)
    controllers: list[Controller] = []

    async def prepare() -> None:
        controllers.extend(await _controllers(api, mirror, settings, plane.services))

    try:
        if settings.loses_results:
            await plane.adopt_keys()
        # Before the recovery, which begins the time that workers have to report what they run.
        await sync_cache(api, mirror)
        await _start(plane, settings, prepare)
        plane.services.metrics.add(OperatorCollector(api, mirror))
        await take_label(api, settings)
        await first(plane.wait(), *(c.run() for c in controllers))
    finally:
        await _stop(plane)


async def _controllers(
    api: KubeClient,
    mirror: InformerCache,
    settings: OperatorSettings,
    services: ControlPlaneServices,
) -> list[Controller]:
    """Returns the controllers, once policies, quotas and pools are as the informer cache has them.

    A worker of a pool that is not declared is refused, and would come back some seconds later only.
    """
    pools = PoolController(
        api,
        mirror,
        settings,
        fleet=services.fleet,
        reservations=services.fleet,
        signals=services.signals,
        epoch=services.epoch,
        catalog=services.catalog,
    )
    services.metrics.add(PoolCollector(lambda: pools.figures))
    policies = PolicyController(api, mirror, services.policies, services.epoch)
    quotas = QuotaController(api, mirror, services.quotas, services.epoch)
    await policies.apply()
    await quotas.apply()
    await pools.declare()
    return [
        policies,
        quotas,
        _workflow_controller(api, mirror, settings, services),
        pools,
        ServiceController(
            api,
            mirror,
            services=services.registry,
            statuses=services.replica_planner,
            epoch=services.epoch,
            router_url=settings.router_url,
        ),
    ]


def _workflow_controller(
    api: KubeClient,
    mirror: InformerCache,
    settings: OperatorSettings,
    services: ControlPlaneServices,
) -> WorkflowController:
    return WorkflowController(
        api,
        mirror,
        runs=services.runs,
        commands=services.commands,
        changes=services.changes,
        policies=services.policies,
        quota=services.run_quota,
        epoch=services.epoch,
        writer=StatusWriter(
            api,
            mirror,
            runs=services.runs,
            epoch=services.epoch,
            documents=services.documents,
        ),
        config_maps=ConfigMapInputs(api, settings, services.uploads),
    )


async def _start(plane: ControlPlane, settings: OperatorSettings, prepare: Prepare) -> None:
    host, port = settings.gateway_host, settings.gateway_port
    try:
        await plane.start(host, port, prepare)
    except OSError as e:
        raise FlowMeshError(
            f"the gateway cannot listen on {host}:{port}: {e.strerror}",
            where="FLOWMESH_GATEWAY_HOST, FLOWMESH_GATEWAY_PORT",
            remedy="name an address of this machine and a free port",
        ) from e


async def _stop(plane: ControlPlane) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(plane.stop(), STOP_S)
