"""Metrics of work: what waits, what runs and what has ended."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product

from prometheus_client.core import Metric

from flowmesh_api.v1.enums import Phase
from flowmesh_control.autoscaling.capacity_signal import CapacitySignalSource
from flowmesh_control.metrics.families import counters, gauge, gauges, histograms
from flowmesh_core.accounting.ledger_lines import EXECUTED_OUTCOMES
from flowmesh_core.errors import FailureKind
from flowmesh_core.machine.state import State
from flowmesh_core.metrics.counters import MachineCounters

OUTCOMES = tuple(sorted(EXECUTED_OUTCOMES | {"replica", "untrusted"} | set(FailureKind)))
ENDS: dict[tuple[str, str], int] = {
    (Phase.SUCCEEDED, ""): 0,
    (Phase.CANCELLED, ""): 0,
    **{(Phase.FAILED, kind): 0 for kind in FailureKind},
}
"""Counters begin at 0: one that begins at 1 hides its first event from a rate."""


def queue(state: State, backlogs: CapacitySignalSource) -> Iterator[Metric]:
    """Yields what waits and what runs now."""
    yield gauge("flowmesh_runs_live", "Unfinished runs.", len(state.runs))
    yield gauge("flowmesh_actions_ready", "Ready actions that wait for a worker.", len(state.ready))
    found = backlogs.now()
    running = Counter(dict.fromkeys(found, 0))
    running.update(a.pool for a in state.attempts.values())
    yield gauges(
        "flowmesh_actions_running",
        "Unfinished attempts, by pool.",
        ["pool"],
        [([pool], count) for pool, count in sorted(running.items())],
    )
    yield gauges(
        "flowmesh_backlog_seconds",
        "Predicted worker-seconds of running and ready work, by pool; also for pools without"
        " workers.",
        ["pool"],
        [([pool], backlog.seconds) for pool, backlog in sorted(found.items())],
    )
    yield gauges(
        "flowmesh_backlog_actions",
        "Ready actions, by the pool that suits them best.",
        ["pool"],
        [([pool], backlog.actions) for pool, backlog in sorted(found.items())],
    )
    causes: Counter[str] = Counter()
    for rejection in state.rejections if state.ready else ():
        causes[rejection.cause] += rejection.count
    yield gauges(
        "flowmesh_actions_rejected",
        "Ready actions that the last scheduling cycle did not place, by cause.",
        ["cause"],
        [([cause], count) for cause, count in sorted(causes.items())],
    )


def _zeros(pools: Iterable[str], names: Iterable[str]) -> dict[tuple[str, str], int]:
    return dict.fromkeys(product(pools, names), 0)


def done(figures: MachineCounters) -> Iterator[Metric]:
    """Yields counters of attempts, steps and runs."""
    yield counters(
        "flowmesh_dispatches",
        "Attempts assigned to workers, by pool.",
        ["pool"],
        [([pool], count) for pool, count in figures.dispatched.items()],
    )
    yield counters(
        "flowmesh_attempts_ended",
        "Attempts that ended, by pool and outcome, such as published, adopted or a kind of"
        " failure.",
        ["pool", "outcome"],
        {**_zeros(figures.dispatched, OUTCOMES), **figures.ended}.items(),
    )
    yield counters(
        "flowmesh_steps_failed",
        "Steps that failed for good, by kind of failure.",
        ["kind"],
        [([kind], figures.steps_failed[kind]) for kind in FailureKind],
    )
    yield counters(
        "flowmesh_runs_ended",
        "Runs that ended, by phase and kind of failure.",
        ["phase", "reason"],
        {**ENDS, **figures.runs_ended}.items(),
    )


def used(figures: MachineCounters) -> Iterator[Metric]:
    """Yields counters of what attempts used, by pool and model."""
    work = list(figures.work.items())
    yield counters(
        "flowmesh_tokens",
        "Tokens that models read (in) and generated (out), by pool and model.",
        ["pool", "model", "direction"],
        [
            ((*key, direction), count)
            for key, w in work
            for direction, count in (("in", w.tokens_in), ("out", w.tokens_out))
        ],
    )
    yield counters(
        "flowmesh_load_seconds",
        "Seconds that attempts waited for components to load, by pool and model.",
        ["pool", "model"],
        [(key, w.load_s) for key, w in work],
    )
    yield counters(
        "flowmesh_run_seconds",
        "Seconds that engines worked on attempts, by pool and model.",
        ["pool", "model"],
        [(key, w.run_s) for key, w in work],
    )


def distributions(figures: MachineCounters) -> Iterator[Metric]:
    """Yields histograms of batches, waiting, running and prediction errors."""
    yield histograms(
        "flowmesh_batch_size",
        "Attempts of one signature that a worker has after a batch was assigned to it, by engine.",
        ["engine"],
        {(engine,): h for engine, h in figures.batch.items()},
    )
    yield histograms(
        "flowmesh_wait_seconds",
        "Seconds from when an action is ready until its first attempt is assigned to a worker, by"
        " pool.",
        ["pool"],
        {(pool,): h for pool, h in figures.waited_s.items()},
    )
    yield histograms(
        "flowmesh_attempt_seconds",
        "Seconds from the assignment of an attempt to a worker until its end, by pool.",
        ["pool"],
        {(pool,): h for pool, h in figures.took_s.items()},
    )
    yield histograms(
        "flowmesh_prediction_error",
        "Error of predicted run times, as a share of the longer of predicted and measured time, by"
        " engine.",
        ["engine"],
        {(engine,): h for engine, h in figures.error.items()},
    )
