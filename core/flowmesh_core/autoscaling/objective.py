"""What autoscaling minimises: dollars, plus the value of the seconds in which users wait.

All rules of this package compare amounts in nano-dollars an hour, so each is the same trade: a
worker is started, kept, moved or ended when that saves more waiting than it costs (ADR 87).
"""

from bisect import bisect_left
from collections.abc import Sequence
from math import sqrt

from flowmesh_core.autoscaling.pool_model import PoolView, TemplateWorker
from flowmesh_core.autoscaling.settings import (
    SIZES_COMPARED,
    USE_MOST,
    VALUE_FACTOR_MOST,
    VALUE_OF_TIME_NANOUSD_PER_HOUR,
)
from flowmesh_core.fleet.demand import SignatureDemand
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.graph.plan import UtilityWeights


def value_of_time(weights: UtilityWeights) -> float:
    """Returns what an hour of a waiting run is worth to its user, in nano-dollars."""
    alpha, beta = weights.alpha, weights.beta
    factor = alpha / beta if alpha < VALUE_FACTOR_MOST * beta else VALUE_FACTOR_MOST
    return VALUE_OF_TIME_NANOUSD_PER_HOUR * (factor if alpha else 0.0)


def response_s(worker: TemplateWorker, work: WorkSize, use: float, workers: int) -> float:
    """Returns the mean seconds from an action's arrival to its end in a pool, loading aside.

    The wait is Sakasegawa's approximation for a queue with several servers
    (doi:10.1007/BF02479715); the servers are the slots of full instances.

    Args:
        worker: an idle worker of the pool.
        work: the action's size.
        use: share of the pool's capacity that is taken.
        workers: of the pool.
    """
    use = min(USE_MOST, use)
    alone_s, full_s = worker.alone.seconds(work), worker.full.seconds(work)
    slots = max(1.0, workers / worker.full.share)
    wait_s: float = full_s * use ** (sqrt(2.0 * (slots + 1.0)) - 1.0) / (slots * (1.0 - use))
    return alone_s + (full_s - alone_s) * use + wait_s


PlacedDemand = tuple[SignatureDemand, TemplateWorker]
"""A signature in demand and an idle worker of the pool that it is in."""


def waiting_at(engines: Sequence[PlacedDemand], workers: int) -> float:
    """Returns the value of the time in which runs wait in a pool, in nano-dollars an hour.

    Args:
        engines: those of the pool, at the rates of the last ten minutes.
        workers: that the pool has.
    """
    use = sum(empty.share_s(one.work) * one.per_s for one, empty in engines) / workers
    return sum(
        value_of_time(one.weights)
        * one.waiting_runs
        * one.per_s
        * response_s(empty, one.work, use, workers)
        for one, empty in engines
    )


def workers_for_rates(pool: PoolView, engines: Sequence[PlacedDemand], least: int = 1) -> int:
    """Returns the number of workers with the least sum of dollars and waiting.

    Args:
        pool: the pool.
        engines: that are in it, at the rates of the last ten minutes.
        least: workers at least, whatever ``pool`` may have.
    """
    price, most = pool.shape.price_nanousd_per_hour, max(least, pool.most)
    numbers = range(least, most + 1, max(1, (most - least) // SIZES_COMPARED))
    return min(numbers, key=lambda n: max(0, n - pool.minimum) * price + waiting_at(engines, n))


def workers_that_pay(
    price_nanousd_per_hour: float,
    work_s: float,
    waiting_nanousd_per_hour: float,
    start_s: float,
    idle_s: float,
    most: int,
) -> int:
    """Returns how many workers save more waiting than they cost.

    One more worker shortens what is left of the work when it has started, and is paid for while it
    starts and for as long as it stays idle at the end.

    Args:
        price_nanousd_per_hour: of a worker.
        work_s: worker-seconds of work.
        waiting_nanousd_per_hour: the value of the time of all who wait for that work.
        start_s: seconds until a further worker has its engines loaded.
        idle_s: seconds for which it stays idle before it is removed.
        most: workers at most.
    """
    if work_s <= 0.0 or most < 1:
        return 0

    def is_enough(workers: int) -> bool:
        left_s = work_s - workers * start_s
        if left_s <= 0.0:
            return True
        shorter_s = left_s / 2.0 * (1.0 / workers - 1.0 / (workers + 1))
        saved = waiting_nanousd_per_hour * left_s / work_s * shorter_s
        return saved < price_nanousd_per_hour * (start_s + idle_s)

    # Each further worker saves less, so the first number that is enough can be bisected.
    return 1 + bisect_left(range(1, most), True, key=is_enough)
