"""Capacity curves of running services: a simulation of the measured replicas, in a thread.

Made when one is asked for, at most a second each, and kept while the replicas and what is measured
of them stay the same to two digits.
"""

import asyncio
import math
import time
from collections.abc import Collection, Sequence

import msgspec

from flowmesh_api.v1.services import CapacityPoint, ServiceCapacity, StageTime
from flowmesh_control.records.service_records import ServiceRecord
from flowmesh_control.serving.replica_scaler import ReplicaScaler, ServiceTarget
from flowmesh_control.serving.service_loads import ServiceLoads
from flowmesh_control.serving.service_slo import requests_of
from flowmesh_core.graph.python_components import CODE_COMPONENT
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.messages import ServingReplica
from flowmesh_core.serving.plan.capacity import PlannedReplica
from flowmesh_core.serving.plan.capacity_curve import PlannedStage, best_rate_per_s, capacity_curve
from flowmesh_core.serving.plan.serving_plan import PlannedComponent
from flowmesh_core.serving.plan.slo_verdict import ENOUGH
from flowmesh_core.serving.plan.stage_paths import chain_of
from flowmesh_core.serving.profile import BatchProfile

WITHIN_S = 1.0
_NOTHING_S = 1e-9
_READY = "ready"
_Key = tuple[tuple[PlannedStage, ...], float]


class CapacityCurves:
    """The curves of all services."""

    def __init__(self, state: State, scaler: ReplicaScaler, loads: ServiceLoads) -> None:
        """Has made none yet.

        Args:
            state: the machine's.
            scaler: has what the last plan was made from.
            loads: what routers report.
        """
        self._state = state
        self._scaler = scaler
        self._loads = loads
        self._made: dict[str, tuple[_Key, tuple[CapacityPoint, ...]]] = {}
        self._one_at_a_time = asyncio.Lock()

    def keep(self, services: Collection[str]) -> None:
        """Forgets all services but these."""
        for gone in self._made.keys() - services:
            del self._made[gone]

    async def of(self, service: ServiceRecord, target: ServiceTarget | None) -> ServiceCapacity:
        """Returns the curve of a service; ``target`` is None for one without a release."""
        latency_s = service.entry.slo_s
        if target is not None:
            latency_s = self._scaler.latency_s(service.id, target)
        found = ServiceCapacity(
            service.name,
            service.namespace,
            requests=requests_of(service, self._loads.seen(service.id), latency_s),
        )
        if target is None:
            return msgspec.structs.replace(found, reason="it has no release yet")
        chain = self._chain(service.id, target)
        stages = self._stages(service.id, chain)
        times = tuple(
            StageTime(
                name,
                component,
                round(planned.alone_s, 6),
                len(planned.replicas),
                self._at_once(service.id, planned),
            )
            if planned.replicas
            else StageTime(name, component)
            for (name, component), planned in zip(chain, stages, strict=True)
        )
        found = msgspec.structs.replace(found, stages=times)
        if reason := self._missing(service.id, times) or _unpredictable(chain, stages):
            return msgspec.structs.replace(found, reason=reason)
        points = await self._points(service.id, (stages, latency_s or math.inf))
        best = best_rate_per_s(stages)
        return msgspec.structs.replace(found, points=points, best_per_s=round(best, 3))

    def best_per_s(self, service: str, target: ServiceTarget) -> float:
        """Returns the requests a second that keep a service's busiest part busy, to two digits.

        It needs no simulation. 0 before enough is measured.
        """
        stages = self._stages(service, self._chain(service, target))
        if self._loads.replies(service) < ENOUGH or not all(s.replicas for s in stages):
            return 0.0
        return _two_digits(best_rate_per_s(stages))

    def _stages(self, service: str, chain: Sequence[tuple[str, str]]) -> tuple[PlannedStage, ...]:
        return tuple(self._stage(service, component) for _, component in chain)

    def _chain(self, service: str, target: ServiceTarget) -> list[tuple[str, str]]:
        """Returns the stages of the slowest path, each with its component."""
        stages = target.graph.stages
        known = self._scaler.made.alone_s
        components = {s.stage.component for s in stages.values()}
        alone_s = {c: known.get((service, c), _NOTHING_S) for c in components}
        return [(n, stages[n].stage.component) for n in chain_of(target.graph, alone_s)]

    def _missing(self, service: str, times: Sequence[StageTime]) -> str:
        """Returns why there can be no curve; empty where there can."""
        replies = self._loads.replies(service)
        if replies < ENOUGH:
            return (
                f"too few samples: {replies} replies were measured, at least {ENOUGH} are needed; "
                "`fmesh load` sends requests"
            )
        if lacking := [t.stage for t in times if not t.replicas]:
            return f"no replica of stage {lacking[0]} is ready and measured yet"
        return ""

    def _stage(self, service: str, component: str) -> PlannedStage:
        planned = self._scaler.components.get((service, component))
        found = []
        for name, worker in self._state.workers.items():
            device_class = worker.shape.device_class
            for replica in worker.replicas or ():
                state = worker.replica_states.get(replica.replica_id)
                is_ours = (replica.service, replica.component) == (service, component)
                if is_ours and planned is not None and state is not None and state.state == _READY:
                    found += self._replica(replica, planned, name, device_class)
        return PlannedStage(tuple(found), component=component)

    def _at_once(self, service: str, stage: PlannedStage) -> int:
        """Returns how many calls of a stage's engine are known to run at once; 0 for others."""
        planned = self._scaler.components.get((service, stage.component))
        if planned is None or not planned.calls_at_once:
            return 0
        return max(replica.cap for replica in stage.replicas)

    def _replica(
        self, replica: ServingReplica, planned: PlannedComponent, worker: str, device_class: str
    ) -> list[PlannedReplica]:
        """Returns a replica; none where nothing was measured of it."""
        profile = planned.profiles.get(device_class)
        if profile is None or not planned.steps_per_call:
            return []
        if replica.opening.engine != CODE_COMPONENT:
            rounded, cap = _rounded(profile, planned.steps_per_call), planned.memory_cap
            if measured := planned.calls_at_once.get(device_class):
                cap = min(cap, max(1, round(measured)))  # beyond that its time is a guess
            return [PlannedReplica(rounded, cap, is_continuous=True)]
        reported = self._loads.replica(replica.replica_id)
        if reported is None:
            return []
        host = f"{worker} {replica.opening.signature}"
        lengths = tuple(map(_two_digits, reported.call_lengths))
        return [
            PlannedReplica(
                _rounded(profile),
                reported.cap,
                host=host,
                is_continuous=bool(lengths),
                call_lengths=lengths,
            )
        ]

    async def _points(self, service: str, key: _Key) -> tuple[CapacityPoint, ...]:
        async with self._one_at_a_time:  # each takes the processor from the event loop
            known = self._made.get(service)
            if known is None or known[0] != key:
                points = await asyncio.to_thread(_simulated, *key)
                known = self._made[service] = key, points
            return known[1]


def _unpredictable(chain: Sequence[tuple[str, str]], stages: Sequence[PlannedStage]) -> str:
    """Returns why no load can be simulated; empty where it can.

    How the steps of a component that iterates alternate with the batches of others is not
    simulated.
    """
    hosts = [{replica.host for replica in stage.replicas} - {""} for stage in stages]
    for number, stage in enumerate(stages):
        if any(r.is_continuous and r.host for r in stage.replicas):
            for other, own in enumerate(hosts):
                if other != number and own & hosts[number]:
                    return (
                        f"stages {chain[number][0]} and {chain[other][0]} share a process, and"
                        f" component {chain[number][1]} iterates, which is not predicted:"
                        " `ownHost: true` gives a component a process of its own"
                    )
    return ""


def _simulated(stages: tuple[PlannedStage, ...], latency_s: float) -> tuple[CapacityPoint, ...]:
    """Returns the points that are made in time, at least one."""
    until_s = time.monotonic() + WITHIN_S
    points = []
    for rate, point in capacity_curve(stages, latency_s):
        points.append(
            CapacityPoint(
                _two_digits(rate),
                round(point.p50_s, 6),
                round(point.p99_s, 6),
                round(point.miss_rate, 6),
            )
        )
        if time.monotonic() > until_s:
            break
    return tuple(points)


def _rounded(profile: BatchProfile, times: float = 1.0) -> BatchProfile:
    return BatchProfile(profile.sizes, tuple(_two_digits(times * s) for s in profile.seconds))


def _two_digits(number: float) -> float:
    return float(f"{number:.2g}")
