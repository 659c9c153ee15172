"""Metrics of services' replicas, as the control plane places them.

Routers have the metrics of requests.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric

from flowmesh_api.v1.services import ServiceStatus
from flowmesh_control.metrics.families import counter, counters, gauges, histograms
from flowmesh_core.machine.state import State
from flowmesh_core.metrics.counters import SERVICES_MAX, MachineCounters
from flowmesh_core.metrics.label_limits import OTHER
from flowmesh_core.units import NANO_PER_USD

WANTED = "wanted"
STATES = (WANTED, "fetching", "loading", "ready", "failed", "closing")


def replicas(services: Iterable[ServiceStatus], state: State) -> Iterator[Metric]:
    """Yields how many replicas each service should have, and has by state."""
    rows: Counter[tuple[str, str]] = Counter()
    for number, service in enumerate(sorted(services, key=lambda s: (s.namespace, s.name))):
        label = f"{service.namespace}/{service.name}" if number < SERVICES_MAX else OTHER
        found = _states(service, state)
        rows.update({(label, name): found[name] for name in STATES})
    yield gauges(
        "flowmesh_service_replicas_by_state",
        "Replicas of a service: how many there should be (wanted), and those that workers report,"
        " by state.",
        ["service", "state"],
        sorted(rows.items()),
    )


def capacities(services: Iterable[ServiceStatus]) -> Iterator[Metric]:
    """Yields how many requests the services can answer, of the first ones: they have no sum."""
    first = sorted(services, key=lambda s: (s.namespace, s.name))[:SERVICES_MAX]
    yield gauges(
        "flowmesh_service_capacity_per_second",
        "Capacity of a service: the requests per second at which its busiest stage or host is busy"
        " all the time.",
        ["service"],
        [((f"{s.namespace}/{s.name}",), s.best_per_s) for s in first if s.best_per_s],
    )


def over_time(figures: MachineCounters) -> Iterator[Metric]:
    """Yields what was counted of services since this leader began."""
    yield histograms(
        "flowmesh_replica_load_seconds",
        "Seconds from when a replica was assigned to its worker, or tried again, until it was"
        " ready.",
        ["service"],
        {(service,): found for service, found in figures.replica_load_s.items()},
    )
    yield counters(
        "flowmesh_replica_failures",
        "Failures of replicas, while they loaded or after they were ready.",
        ["service"],
        [((service,), count) for service, count in figures.replica_failures.items()],
    )
    yield counters(
        "flowmesh_service_usd",
        "Dollars that the replicas of a service have cost since this leader began.",
        ["service"],
        [((name,), paid / NANO_PER_USD) for name, paid in figures.service_paid_nanousd.items()],
    )
    yield counter(
        "flowmesh_serving_plans",
        "Serving plans that added a replica to a worker or removed one.",
        figures.serving_plans,
    )


def idle(state: State) -> Iterator[Metric]:
    """Yields the time in which workers with replicas had no call, since this leader began."""
    yield counters(
        "flowmesh_replica_idle_seconds",
        "Seconds in which a worker with replicas had no call, by pool and by whether attempts used"
        " the worker.",
        ["pool", "state"],
        [
            ((pool, name), seconds)
            for pool in state.figures.worker_s
            for name, seconds in zip(
                ("used", "unused"), state.figures.replica_idle_s[pool], strict=True
            )
        ],
    )


def _states(service: ServiceStatus, state: State) -> Counter[str]:
    """Returns the replicas of a service by state."""
    found: Counter[str] = Counter({WANTED: sum(r.wanted for r in service.replicas)})
    for component in service.replicas:
        for replica_id, name in component.placed.items():
            worker = state.workers.get(name)
            if worker is not None and replica_id in worker.replica_states:
                found[worker.replica_states[replica_id].state] += 1
    return found
