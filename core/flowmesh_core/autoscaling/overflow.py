"""Overflow: workers of other pools, where a pool cannot have as many as would pay.

Engines in demand stay together in their preferred pool. If that pool is at its maximum and cannot
keep up, workers of other pools help it, those with the lowest price for their speed first. As long
as actions arrive at the same rate, Little's law says how many there are and how long each takes:
those that wait for each other become fewer in proportion to the capacity (ADR 103).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt

from flowmesh_core.autoscaling.objective import PlacedDemand, arriving
from flowmesh_core.autoscaling.pool_model import PoolView, TemplateWorker
from flowmesh_core.units import Digest

AbleOf = Mapping[Digest, Mapping[str, TemplateWorker]]
"""Signature → pool → an idle worker of that pool, for the pools that can run it."""


@dataclass(slots=True)
class UnfinishedWork:
    """The unfinished actions of a signature that count in a pool.

    Attributes:
        waiting_nanousd_per_hour: the value of time of the runs that wait for them.
    """

    actions: int = 0
    waiting_nanousd_per_hour: float = 0.0

    def add(self, actions: int, waiting_nanousd_per_hour: float) -> None:
        """Adds actions and the value of time of the runs that wait for them."""
        self.actions += actions
        self.waiting_nanousd_per_hour += waiting_nanousd_per_hour


@dataclass(frozen=True, slots=True)
class HelpingPool:
    """What another pool can do for a full one.

    Attributes:
        room: how many workers it can have beside those that it needs itself.
        helpers: its workers that have unfinished actions of the full pool's engines.
    """

    room: int = 0
    helpers: int = 0


def overflow_workers(
    full: PoolView,
    engines: Sequence[PlacedDemand],
    able_of: AbleOf,
    work_s: float,
    unfinished: Mapping[Digest, UnfinishedWork],
    helping: Mapping[str, HelpingPool],
) -> dict[str, int]:
    """Returns pool → the workers that it should have for the engines of a full pool.

    There are no more workers than actions beyond one for each worker of the full pool, and none in
    a pool where an action by itself takes as long as here beside the others.

    Args:
        full: a pool that is at its maximum.
        engines: its engines in demand, at the rates of the last ten minutes; at least one.
        able_of: the pools that can run each engine.
        work_s: worker-seconds of work in the full pool.
        unfinished: signature of an engine → its actions that count in the full pool.
        helping: pool → what it can do, for each other pool.
    """
    others = _others(full, engines, able_of)
    speeds = {name: _speed(name, engines, able_of) for name in others}
    # All that follows is what it would be without the workers that help already.
    capacity = float(full.most)
    helpers = sum(speeds[name] * helping[name].helpers for name in others)
    helped = 1.0 + helpers / capacity
    actions = helped * sum(work.actions for work in unfinished.values())
    beyond = actions - full.most
    response_s = actions / sum(one.per_s for one, _ in engines)
    spare = max(0.0, full.most - arriving(engines))
    found: dict[str, int] = {}
    in_order = sorted(
        others,
        key=lambda n: (not others[n].minimum, others[n].price_nanousd_per_hour / speeds[n], n),
    )
    for name in in_order:
        pool, speed = others[name], speeds[name]
        able = _able(name, engines, able_of)
        here = [unfinished[one.info.signature] for one, _ in able]
        usable = ceil(min(beyond, helped * sum(work.actions for work in here)))
        if usable <= 0 or _alone_s(able) >= response_s:
            continue
        delayed = helped * sum(work.waiting_nanousd_per_hour for work in here)
        delayed *= (actions - full.most) / actions * max(0.0, 1.0 - spare * pool.start_s / work_s)
        # The number with the least price * number + delayed * most / (capacity + speed * number).
        worth = delayed * full.most * speed / pool.price_nanousd_per_hour
        number = max(pool.minimum, round((sqrt(worth) - capacity) / speed))
        number = min(number, usable, helping[name].room)
        if number > 0:
            found[name] = number
            capacity += speed * number
            beyond -= number
    return found


def _others(
    full: PoolView, engines: Sequence[PlacedDemand], able_of: AbleOf
) -> dict[str, PoolView]:
    found = {
        t.pool.name: t.pool for one, _ in engines for t in able_of[one.info.signature].values()
    }
    return {name: pool for name, pool in found.items() if name != full.name}


def _able(pool: str, engines: Sequence[PlacedDemand], able_of: AbleOf) -> list[PlacedDemand]:
    """Returns the engines that a pool can run, on an idle worker of that pool."""
    pairs = ((one, able_of[one.info.signature].get(pool)) for one, _ in engines)
    return [(one, there) for one, there in pairs if there is not None]


def _speed(pool: str, engines: Sequence[PlacedDemand], able_of: AbleOf) -> float:
    """Returns how fast a worker of another pool is, compared with one of the full pool."""
    able = [pair for pair in engines if pool in able_of[pair[0].info.signature]]
    return arriving(able) / arriving(_able(pool, engines, able_of))


def _alone_s(engines: Sequence[PlacedDemand]) -> float:
    """Returns the mean seconds of an action by itself on an idle worker."""
    seconds = sum(worker.alone.seconds(one.work) * one.per_s for one, worker in engines)
    return seconds / sum(one.per_s for one, _ in engines)
