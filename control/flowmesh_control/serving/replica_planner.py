"""Keeps the replicas of services where they should be: one plan a second, while there are any."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from flowmesh_api.v1.services import (
    ComponentReasons,
    ReplicaPlacement,
    ServiceCapacity,
    ServiceCondition,
    ServiceReasons,
    ServiceReplicas,
    ServiceStatus,
)
from flowmesh_control.errors import PlacementUnknownError
from flowmesh_control.loop.clock import Clock
from flowmesh_control.records.service_records import (
    ReleasedComponent,
    ServiceRecord,
    ServiceRelease,
)
from flowmesh_control.serving.capacity_curves import CapacityCurves
from flowmesh_control.serving.fleet import fleet_view, replica_ids_of
from flowmesh_control.serving.learned_halvings import LearnedHalvings
from flowmesh_control.serving.registry import ServiceRegistry
from flowmesh_control.serving.replica_scaler import ReplicaScaler
from flowmesh_control.serving.service_costs import ServiceCosts
from flowmesh_control.serving.service_loads import ServiceLoads
from flowmesh_control.serving.service_slo import (
    ServiceTargets,
    condition_of,
    has_target,
    requests_of,
)
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.catalog.adapter_ports import adapter_contents
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.graph.python_components import (
    CODE_COMPONENT,
    TRUSTED_CODE_TRUST,
    TRUSTED_PARAM,
)
from flowmesh_core.machine import serving
from flowmesh_core.machine.action_spec import opening_of, signature_info
from flowmesh_core.machine.events import ServingPlanChanged
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.messages import RouterAddress
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.protocol.router_services import ServiceEntry
from flowmesh_core.serving.plan.component_demand import ComponentDemand
from flowmesh_core.serving.plan.replica_placement import ServingPlan
from flowmesh_core.sharing.scopes import namespace_scope

EVERY_S = 1.0
RECONNECT_S = 6.0
"""After a restart of the leader: more than a worker's longest pause before it connects again."""
_READY = "ready"
FOLLOW_ROUNDS = 10
"""Services learn of newer outputs once in so many rounds."""
log = logging.getLogger("flowmesh.control")


class ReplicaPlanner:
    """Plans replicas, and shows the status of services.

    Attributes:
        plan: the last one.
        loads: what routers report of the replicas that it has placed.
    """

    def __init__(
        self,
        *,
        state: State,
        registry: ServiceRegistry,
        catalog: Catalog,
        pools: Callable[[], Sequence[PoolView]],
        routers: tuple[RouterAddress, ...],
        post_and_wait: Callable[[ServingPlanChanged], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """Keeps what plans are made from.

        Args:
            state: the machine's.
            registry: the services.
            catalog: the engines.
            pools: that can grow.
            routers: that the workers' hubs connect to.
            post_and_wait: posts a plan to the machine.
            clock: Unix time in seconds.
        """
        self._state = state
        self._registry = registry
        self._catalog = catalog
        self._pools = pools
        self._routers = routers
        self._post_and_wait = post_and_wait
        self._clock = clock
        self.plan = ServingPlan()
        self._is_planned = False
        self.loads = ServiceLoads(self._placed_by_service, clock)
        self._scaler = ReplicaScaler(state, self.loads)
        self._targets = ServiceTargets()
        self._halvings = LearnedHalvings()
        self._curves = CapacityCurves(state, self._scaler, self.loads)
        self._costs = ServiceCosts()

    async def run(self) -> None:
        """Imports models and plans replicas until it is cancelled.

        Workers first get the time to report the replicas that they hold.
        """
        await asyncio.sleep(self._report_window_s())
        for round_number in itertools.count():
            try:
                if round_number % FOLLOW_ROUNDS == 0:
                    await self._registry.follow()
                await self._registry.resolve()
                await self.update()
            except FlowMeshError as error:  # such as a store that does not answer
                log.warning("the replicas of services stay as they are: %s", error)
            await asyncio.sleep(EVERY_S)

    def _report_window_s(self) -> float:
        window_s = self._state.settings.sync_window_s
        if any(s.release is not None for s in self._registry.all()):
            return max(window_s, RECONNECT_S)
        return window_s

    async def update(self) -> None:
        """Makes a plan, and posts it where workers do not have it yet.

        Until the declared pools are known, no worker may load anything: it could be reserved.
        """
        if self._state.reserved_pools is None:
            return
        await self._plan()
        self._is_planned = True

    async def _plan(self) -> None:
        known, now_s = self._registry.all(), self._clock()
        for kept in (self.loads, self._targets, self._curves, self._costs):
            kept.keep({s.id for s in known})
        for service in known:
            self._costs.observe(service.id, self._state.service_spend.get(service.id, 0), now_s)
        services = [s for s in known if s.release is not None]
        if not services and not any(map(replica_ids_of, self._state.workers.values())):
            self.plan = ServingPlan()
            self._scaler.clear()
            return
        self._halvings.observe(self._state.workers.values())
        demands = [d for s in services for d in self._demands(s)]
        self._halvings.keep({d.info.signature for d in demands})
        most = {(s.id, c.plan.name): c.plan.replicas_max for s in services for c in _components(s)}
        targets = {s.id: self._targets.of(s) for s in services}
        fleet = fleet_view(self._state, self._pools(), now_s)
        self.plan = self._scaler.plan(demands, most, targets, fleet, now_s)
        if not serving.plan_is_current(self._state, self.plan.workers, self._routers):
            await self._post_and_wait(ServingPlanChanged(self.plan.workers, self._routers))

    def floors(self) -> Mapping[str, int]:
        """Returns how many workers each pool needs for replicas."""
        return self.plan.floors

    def status(self, service: ServiceRecord) -> ServiceStatus:
        """Returns the status of a service."""
        replicas: tuple[ServiceReplicas, ...] = ()
        if service.release is not None:
            release = service.release
            replicas = tuple(self._replicas(service, release, c) for c in release.components)
        least = {c.plan.name: c.plan.replicas_min for c in _components(service)}
        phase, ready = _phase(service, replicas, least, self._registry.delays.get(service.id, ""))
        conditions = [ServiceCondition("Accepted", "True", "Valid"), ready]
        seen, best_per_s = self.loads.seen(service.id), 0.0
        requests = requests_of(service, seen, self._latency_s(service))
        if service.release is not None and has_target(service):
            target, made = self._targets.of(service), self._scaler.made
            best_per_s = self._curves.best_per_s(service.id, target)
            conditions.append(condition_of(service, target.graph, requests, made, seen))
        return ServiceStatus(
            name=service.name,
            namespace=service.namespace,
            model=service.model,
            phase=phase,
            generation=service.generation,
            created_s=service.created_s,
            release=service.release.name if service.release is not None else "",
            replicas=replicas,
            conditions=tuple(conditions),
            paid_nanousd=self._paid_nanousd(service),
            requests=requests,
            stages=tuple(s.name for s in service.entry.graph.stages) if service.entry.graph else (),
            best_per_s=best_per_s,
            nanousd_per_hour=self._costs.nanousd_per_hour(service.id),
        )

    def _paid_nanousd(self, service: ServiceRecord) -> int:
        """Returns what a service has cost, without earlier ones of its name.

        A leader that crashed may have written the service and not the last second of the accounts.
        """
        spent = self._state.service_spend.get(service.id, 0)
        return max(0, spent - service.paid_before_nanousd)

    def reasons(self, service: ServiceRecord) -> ServiceReasons:
        """Returns why each replica of a service is where it is, or missing."""
        return ServiceReasons(
            service.name,
            service.namespace,
            tuple(self._reasons(service, c) for c in _components(service)),
        )

    async def capacity(self, service: ServiceRecord) -> ServiceCapacity:
        """Returns the capacity curve of a service."""
        target = None if service.release is None else self._targets.of(service)
        return await self._curves.of(service, target)

    def entry(self, service: ServiceRecord) -> ServiceEntry:
        """Returns what routers know of a service, without tokens.

        Raises:
            PlacementUnknownError: there is no plan yet: routers go on with the last leader's.
        """
        if not self._is_planned and service.release is not None:
            raise PlacementUnknownError(
                "this leader has not planned the replicas of services yet",
                where=service.id,
                remedy="it waits some seconds for its workers to report what they have",
            )
        return msgspec.structs.replace(
            service.entry,
            created_s=service.created_s,
            placed=self._placed(f"{service.id}/"),
            slo_s=self._latency_s(service),
        )

    def _latency_s(self, service: ServiceRecord) -> float:
        """Returns when a reply of a service is late; 0 for never, and before it is known."""
        if service.release is None:
            return service.entry.slo_s
        return self._scaler.latency_s(service.id, self._targets.of(service))

    def _placed_by_service(self) -> dict[str, dict[str, str]]:
        """Returns the workers of all replicas: service → replica's id → worker."""
        found: dict[str, dict[str, str]] = {s.id: {} for s in self._registry.all()}
        for worker, replicas in self.plan.workers.items():
            for replica in replicas:
                found.setdefault(replica.service, {})[replica.replica_id] = worker
        return found

    def _placed(self, prefix: str) -> dict[str, str]:
        return {
            r.replica_id: worker
            for worker, replicas in self.plan.workers.items()
            for r in replicas
            if r.replica_id.startswith(prefix)
        }

    def _reasons(self, service: ServiceRecord, component: ReleasedComponent) -> ComponentReasons:
        name = component.plan.name
        count = self._scaler.made.counts.get((service.id, name))
        return ComponentReasons(
            component=name,
            wanted=component.plan.replicas_min if count is None else count.wanted,
            least=component.plan.replicas_min,
            most=component.plan.replicas_max,
            reason="" if count is None else count.text,
            replicas=tuple(
                ReplicaPlacement(r.verdict, r.text, r.worker, r.replica_id)
                for r in self.plan.placements
                if (r.service, r.component) == (service.id, name)
            ),
        )

    def _replicas(
        self, service: ServiceRecord, release: ServiceRelease, component: ReleasedComponent
    ) -> ServiceReplicas:
        name = component.plan.name
        found = self._placed(f"{service.id}/{name}/{release.name}/")
        step = component.plan.step
        count = self._scaler.made.counts.get((service.id, name))
        ready, code_failures, reasons = 0, 0, {self.plan.reasons.get((service.id, name), "")}
        if not self._catalog.pinned(step.engine, step.contract, step.implementation, step.minor):
            reasons.add(
                f"{step.engine} is not installed in version {step.contract}, implementation "
                f"{step.implementation}; apply the service again"
            )
        for replica_id, worker_name in found.items():
            worker = self._state.workers.get(worker_name)
            state = worker.replica_states.get(replica_id) if worker is not None else None
            if state is not None and state.state != _READY:
                code_failures = max(code_failures, state.code_failures)
                reasons.add(": ".join(filter(None, (worker_name, state.state, state.reason))))
            elif state is not None and (other := self._lacks(service, release, name, worker_name)):
                affinity = component.plan.affinity
                reasons.add(f"{worker_name}: waits for {other}, by affinity {affinity!r}")
            else:
                ready += state is not None
        return ServiceReplicas(
            component=name,
            ready=ready,
            wanted=component.plan.replicas_min if count is None else count.wanted,
            workers=tuple(sorted(set(found.values()))),
            reason="; ".join(sorted(r for r in reasons if r)),
            placed=found,
            code_failures=code_failures,
        )

    def _lacks(
        self, service: ServiceRecord, release: ServiceRelease, component: str, worker: str
    ) -> str:
        """Returns a component of the same affinity group that is not ready on a worker, or "".

        Until it is, no request uses the others of the group there.
        """
        states = self._state.workers[worker].replica_states
        for other in group_of(release.components, component):
            prefix = f"{service.id}/{other}/{release.name}/"
            if not any(s.state == _READY for i, s in states.items() if i.startswith(prefix)):
                return other
        return ""

    def _demands(self, service: ServiceRecord) -> list[ComponentDemand]:
        release = service.release
        assert release is not None, "only services with a release have demands"
        found = []
        for component in release.components:
            step = component.plan.step
            contract = self._catalog.pinned(
                step.engine, step.contract, step.implementation, step.minor
            )
            if contract is not None:
                found.append(self._demand(service, release, component, contract))
        return found

    def _demand(
        self,
        service: ServiceRecord,
        release: ServiceRelease,
        component: ReleasedComponent,
        contract: EngineContract,
    ) -> ComponentDemand:
        step = component.plan.step
        adapters = adapter_contents({p: a.digest for p, a in component.models.items()})
        info = signature_info(step, contract, component.models, adapters)
        memory_mib = max(
            info.requirement.memory_mib, self._state.learned.reserve_mib(info.signature)
        )
        opening = msgspec.structs.replace(
            opening_of(info, step, contract, _without_manifests(component.models)),
            memory_mib=memory_mib,
            read_scopes=release.read_scopes,
        )
        salt = self._state.prefix_salt(namespace_scope(service.namespace))
        reserved = self._state.reserved_pools or {}
        trusted = bool(step.params.get(TRUSTED_PARAM)) and step.engine == CODE_COMPONENT
        info = info.with_trust(max(release.min_trust, TRUSTED_CODE_TRUST if trusted else 0))
        return ComponentDemand(
            service=service.id,
            component=component.plan.name,
            release=release.name,
            info=info,
            opening=opening,
            wanted=component.plan.replicas_min,
            calls_max=component.plan.calls_max,
            salts={service.namespace: salt},
            reserved_pools={p for p, spaces in reserved.items() if service.namespace in spaces},
            affinity=component.plan.affinity,
            trusted=trusted,
            halvings=self._halvings.of(info.signature),
            ttft_s=service.entry.ttft_s,
            tpot_s=service.entry.tpot_s,
        )


def _without_manifests(models: Mapping[str, Artifact]) -> dict[str, Artifact]:
    """Leaves out the manifests of data sets, which a worker reads from the store."""
    return {port: msgspec.structs.replace(a, manifest=None) for port, a in models.items()}


def group_of(components: Sequence[ReleasedComponent], name: str) -> list[str]:
    """Returns the other components of a component's affinity group."""
    affinity = next(c.plan.affinity for c in components if c.plan.name == name)
    found = [c.plan.name for c in components if c.plan.affinity == affinity]
    return [other for other in found if affinity and other != name]


def _components(service: ServiceRecord) -> tuple[ReleasedComponent, ...]:
    return service.release.components if service.release is not None else ()


def _phase(
    service: ServiceRecord,
    replicas: tuple[ServiceReplicas, ...],
    least: Mapping[str, int],
    delay: str,
) -> tuple[str, ServiceCondition]:
    """Returns the phase of a service, and its condition Ready.

    One with its least number of replicas is ready, though its demand has more of them loaded.
    """
    several = len(replicas) > 1
    missing = [r for r in replicas if r.reason]
    reasons = "; ".join(f"{r.component}: {r.reason}" if several else r.reason for r in missing)
    if service.release is None:
        if service.failure:
            return "Failed", ServiceCondition("Ready", "False", "ImportFailed", service.failure)
        text = delay or "its models are being imported"
        return "Pending", ServiceCondition("Ready", "False", "Importing", text)
    if all(r.ready >= least[r.component] for r in replicas):
        return "Ready", ServiceCondition("Ready", "True", "ReplicasReady", service.failure)
    if all(r.ready for r in replicas):
        return "Degraded", ServiceCondition("Ready", "True", "ReplicasMissing", reasons)
    return "Loading", ServiceCondition("Ready", "False", "ReplicasMissing", reasons)
