"""Overflow: workers of other pools, where a pool cannot have as many as would pay.

Engines in demand stay together in their preferred pool. If that pool is at its maximum and cannot
keep up, workers of other pools do the rest, those with the lowest price for their speed first. As
long as actions arrive at the same rate, those that wait for each other become fewer in proportion
to the capacity (Little's law; ADR 103).
"""

from collections.abc import Mapping, Sequence
from math import sqrt

from flowmesh_core.autoscaling.objective import PlacedDemand, arriving
from flowmesh_core.autoscaling.pool_model import PoolView, TemplateWorker
from flowmesh_core.units import Digest


def overflow_workers(
    full: PoolView,
    engines: Sequence[PlacedDemand],
    able_of: Mapping[Digest, Mapping[str, TemplateWorker]],
    work_s: float,
    delayed_nanousd_per_hour: float,
) -> dict[str, int]:
    """Returns pool → the workers that it should have for the engines of a full pool.

    Args:
        full: a pool that is at its maximum.
        engines: its engines in demand, at the rates of the last ten minutes; at least one.
        able_of: signature → pool → an idle worker of that pool.
        work_s: worker-seconds of work in the full pool.
        delayed_nanousd_per_hour: the value of the time for which its actions wait for each other.
    """
    spare = max(0.0, full.most - arriving(engines))
    capacity, found = float(full.most), dict[str, int]()
    others = {
        t.pool.name: t.pool for one, _ in engines for t in able_of[one.info.signature].values()
    }
    del others[full.name]
    speeds = {name: _speed(name, engines, able_of) for name in others}
    for name in sorted(others, key=lambda n: (others[n].price_nanousd_per_hour / speeds[n], n)):
        pool, speed = others[name], speeds[name]
        left = max(0.0, 1.0 - spare * pool.start_s / work_s)
        # The number with the least price * number + delayed * most / (capacity + speed * number).
        worth = left * delayed_nanousd_per_hour * full.most * speed / pool.price_nanousd_per_hour
        number = min(pool.most, round((sqrt(worth) - capacity) / speed))
        if number > 0:
            found[name] = number
            capacity += speed * number
    return found


def _speed(
    pool: str,
    engines: Sequence[PlacedDemand],
    able_of: Mapping[Digest, Mapping[str, TemplateWorker]],
) -> float:
    """Returns how much of the engines' work a worker of another pool does, beside one of theirs.

    What it cannot run at all stays with theirs.
    """
    able = [pair for pair in engines if pool in able_of[pair[0].info.signature]]
    there = [(one, able_of[one.info.signature][pool]) for one, _ in able]
    return arriving(able) / arriving(there) * (arriving(able) / arriving(engines))
