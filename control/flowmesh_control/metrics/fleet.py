"""Metrics of workers, by pool.

No label is a worker's name: every pod has a new one, and the number of series would only grow.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from prometheus_client.core import Metric

from flowmesh_control.autoscaling.capacity_signal import CapacitySignalSource
from flowmesh_control.metrics.families import counters, gauges
from flowmesh_control.metrics.worker_telemetry import WorkerTelemetry
from flowmesh_core.errors import FailureKind
from flowmesh_core.machine.state import State
from flowmesh_core.units import NANO_PER_USD

LEFT = (FailureKind.LOST, FailureKind.DRAINED)
STATES = ("ready", "busy", "cordoned", "draining")


def fleet(state: State, backlogs: CapacitySignalSource) -> Iterator[Metric]:
    """Yields how many workers there are now, by state, their engine instances and prices."""
    count: Counter[tuple[str, str]] = Counter()
    for pool in backlogs.now():
        count.update({(pool, name): 0 for name in STATES})
    instances: Counter[tuple[str, str]] = Counter()
    prices: dict[tuple[str, str], float] = {}
    for worker in state.workers.values():
        pool = worker.shape.pool
        idle = "ready" if state.takes_work(worker) else "cordoned"
        doing = "busy" if worker.attempts else idle
        count[pool, "draining" if worker.draining else doing] += 1
        instances.update((pool, "asleep" if i.asleep else i.state) for i in worker.instances)
        estimated = str(worker.shape.price_estimated).lower()
        prices[pool, estimated] = worker.shape.price_nanousd_per_hour / NANO_PER_USD
    yield gauges(
        "flowmesh_workers",
        "Connected workers, by pool and state.",
        ["pool", "state"],
        sorted(count.items()),
    )
    yield gauges(
        "flowmesh_engine_instances",
        "Engine instances, by pool and state.",
        ["pool", "state"],
        sorted(instances.items()),
    )
    yield gauges(
        "flowmesh_worker_price_usd_per_hour",
        "Price of one worker of a pool in dollars per hour; estimated if it comes from a table of"
        " prices.",
        ["pool", "estimated"],
        sorted(prices.items()),
    )


def over_time(state: State, workers: WorkerTelemetry) -> Iterator[Metric]:
    """Yields counters of workers since this leader began."""
    departed: dict[tuple[str, str], int] = dict.fromkeys(product(state.figures.worker_s, LEFT), 0)
    departed.update(state.figures.workers_left)
    yield counters(
        "flowmesh_worker_seconds",
        "Seconds that workers were connected, by pool and state: busy or idle.",
        ["pool", "state"],
        [
            ((pool, name), seconds)
            for pool, pair in state.figures.worker_s.items()
            for name, seconds in zip(("busy", "idle"), pair, strict=True)
        ],
    )
    yield counters(
        "flowmesh_workers_gone",
        "Workers that left, by pool and kind: lost (their heartbeats stopped) or drained.",
        ["pool", "kind"],
        departed.items(),
    )
    yield counters(
        "flowmesh_protocol_violations",
        "Protocol violations of workers, by pool: messages with dropped items, and results that do"
        " not match their identity.",
        ["pool"],
        [
            ([pool], state.figures.protocol_violations[pool])
            for pool in {*state.figures.worker_s, *state.figures.protocol_violations}
        ],
    )
    yield counters(
        "flowmesh_second_opinions",
        "Reported failures for which another worker was asked for a second opinion, by pool of the"
        " first worker.",
        ["pool"],
        [([pool], count) for pool, count in state.figures.second_opinions.items()],
    )
    yield counters(
        "flowmesh_untrusted_results",
        "Results discarded because every subscriber requires more trust than their worker has, by"
        " pool.",
        ["pool"],
        [([pool], count) for pool, count in state.figures.untrusted_results.items()],
    )
    yield counters(
        "flowmesh_engine_wakes",
        "Times that a sleeping engine instance was woken, by pool.",
        ["pool"],
        [((pool,), count) for pool, (count, _) in state.figures.wakes.items()],
    )
    yield counters(
        "flowmesh_engine_wake_seconds",
        "Seconds that waking engine instances took, by pool.",
        ["pool"],
        [((pool,), seconds) for pool, (_, seconds) in state.figures.wakes.items()],
    )
    yield counters(
        "flowmesh_reports_not_learned",
        "Measurements of workers that were ignored because they are not credible, by pool and"
        " figure: run, load, wake, fetch or memory.",
        ["pool", "figure"],
        state.figures.not_learned.items(),
    )
    yield counters(
        "flowmesh_worker_stored_bytes",
        "Bytes that workers wrote to the store, by pool.",
        ["pool"],
        [([pool], value) for pool, value in workers.totals["stored_bytes"].items()],
    )
    yield counters(
        "flowmesh_worker_agent_cpu_seconds",
        "CPU seconds of worker agents, without engines, by pool.",
        ["pool"],
        [([pool], value) for pool, value in workers.totals["agent_cpu_s"].items()],
    )


@dataclass(frozen=True, slots=True)
class WorkerIntakeCounters:
    """What the worker gateway counts of workers' messages.

    Attributes:
        dropped: items that were dropped, by reason.
        paused: how often reading a worker paused because it sent too much, by pool.
    """

    dropped: Mapping[str, int]
    paused: Mapping[str, int]


def intake(counted: WorkerIntakeCounters) -> Iterator[Metric]:
    """Yields what was dropped of workers' messages, and how often reading them paused."""
    yield counters(
        "flowmesh_gateway_dropped",
        "Items that the gateway dropped from workers' messages, by reason.",
        ["reason"],
        [([str(reason)], count) for reason, count in counted.dropped.items()],
    )
    yield counters(
        "flowmesh_gateway_paused",
        "Times that the gateway stopped reading from a worker for a while because it sent too much,"
        " by pool.",
        ["pool"],
        [([pool], count) for pool, count in counted.paused.items()],
    )
