"""What autoscaling minimises: dollars plus the value of the time that users wait.

All rules of this package compare amounts in nano-dollars an hour, so they all make the same trade:
a worker is started, kept, moved or ended if that saves more waiting than it costs (ADR 87).
"""

from bisect import bisect_left
from collections.abc import Sequence
from math import floor, sqrt

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
    """Returns the mean seconds from an action's arrival in a pool to its end, without loading.

    The wait is Sakasegawa's approximation for a queue with several servers
    (doi:10.1007/BF02479715); the servers are the slots of full instances.

    Args:
        worker: an idle worker of the pool.
        work: the action's size.
        use: the share of the pool's capacity that is in use.
        workers: how many workers the pool has.
    """
    use = min(USE_MOST, use)
    alone_s, full_s = worker.alone.seconds(work), worker.full.seconds(work)
    slots = max(1.0, workers / worker.full.share)
    wait_s: float = full_s * use ** (sqrt(2.0 * (slots + 1.0)) - 1.0) / (slots * (1.0 - use))
    return alone_s + (full_s - alone_s) * use + wait_s


PlacedDemand = tuple[SignatureDemand, TemplateWorker]
"""A signature in demand and an idle worker of the pool that it is in."""


def arriving(engines: Sequence[PlacedDemand]) -> float:
    """Returns the worker-seconds of work that arrive in a second."""
    return sum(empty.share_s(one.work) * one.per_s for one, empty in engines)


def waiting_at(engines: Sequence[PlacedDemand], workers: int) -> float:
    """Returns the value of the time that runs wait in a pool, in nano-dollars an hour.

    Args:
        engines: the pool's engines in demand, at the rates of the last ten minutes.
        workers: how many workers the pool has.
    """
    use = arriving(engines) / workers
    return sum(
        value_of_time(one.weights)
        * one.waiting_runs
        * one.per_s
        * response_s(empty, one.work, use, workers)
        for one, empty in engines
    )


def workers_for_rates(pool: PoolView, engines: Sequence[PlacedDemand], least: int = 1) -> int:
    """Returns the number of workers with the lowest sum of dollars and waiting.

    Args:
        pool: the pool.
        engines: the pool's engines in demand, at the rates of the last ten minutes.
        least: the least number of workers, even if it exceeds the pool's maximum.
    """
    price, most = pool.price_nanousd_per_hour, max(least, pool.most)
    numbers = range(least, most + 1, max(1, (most - least) // SIZES_COMPARED))
    return min(numbers, key=lambda n: max(0, n - pool.minimum) * price + waiting_at(engines, n))


def workers_that_pay(
    price_nanousd_per_hour: float,
    work_s: float,
    waiting_nanousd_per_hour: float,
    start_s: float,
    idle_s: float,
    most: int,
    arriving: float = 0.0,
) -> int:
    """Returns how many workers save more waiting than they cost.

    Another worker speeds up the work that is left once it has started. It also costs its price
    while it starts and while it stays idle at the end. Workers that arriving work keeps busy do not
    shorten the queue, so there is at least one more than those, whatever it costs.

    Args:
        price_nanousd_per_hour: the price of a worker.
        work_s: worker-seconds of work.
        waiting_nanousd_per_hour: the value of time of all runs that wait for that work.
        start_s: seconds until another worker has loaded its engines.
        idle_s: seconds that a worker stays idle before it is removed.
        most: the largest number to return.
        arriving: worker-seconds of work that arrive in a second.
    """
    if work_s <= 0.0 or most < 1:
        return 0

    def is_enough(workers: int) -> bool:
        spare = workers - arriving
        left_s = work_s - spare * start_s
        if left_s <= 0.0:
            return True
        sooner_s = left_s / 2.0 * (1.0 / spare - 1.0 / (spare + 1.0))
        saved = waiting_nanousd_per_hour * left_s / work_s * sooner_s
        return saved < price_nanousd_per_hour * (start_s + idle_s)

    # Each additional worker saves less, so bisection finds the first number that is enough.
    least = min(most, floor(arriving) + 1)
    return least + bisect_left(range(least, most), True, key=is_enough)
