"""A group's estimates on its feasible workers, and the scale of their terms.

Groups that differ only in their weights share them; a cycle has thousands of such groups.
"""

from collections.abc import Callable, Sequence

from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.placement.capacity import RUN
from flowmesh_core.placement.equivalence import NANO_HOUR_S, EquivalenceClass
from flowmesh_core.placement.interruptions import expected_loss_s
from flowmesh_core.placement.settings import FAIR_SHARE_PRICE_NANOUSD_PER_HOUR, LOCALITY_SHARE
from flowmesh_core.placement.utility import LEAST_FINISH_S, Estimate, UtilityScale, sunk_share


class Estimates:
    """The estimates of a group.

    Attributes:
        all: one estimate for each equivalence class.

    Args:
        found: the estimates, at least one.
        common_s: seconds of loading that serve later actions and are the same in every class.
    """

    __slots__ = ("_common_s", "_dearest_nanousd", "_earliest_s", "_terms", "all")

    def __init__(self, found: list[Estimate], common_s: float = 0.0) -> None:
        self.all = found
        self._common_s = common_s
        finishes_s = [p.finish_s(p.first_tier) - common_s for p in found]
        self._earliest_s = earliest_s = max(LEAST_FINISH_S, min(finishes_s))
        self._dearest_nanousd = dearest = max(1, *[p.expected_nanousd for p in found])
        self._terms = [
            (
                earliest_s / finish_s if finish_s > earliest_s else 1.0,
                p.expected_nanousd / dearest,
                p.sunk,
                p.locality_at(p.first_tier),
            )
            for finish_s, p in zip(finishes_s, found, strict=True)
        ]

    def scale(self, weights: UtilityWeights) -> UtilityScale:
        """Returns the scale for the terms of a group with these weights."""
        share = sunk_share(weights)
        return UtilityScale(weights, self._earliest_s, self._dearest_nanousd, self._common_s, share)

    def utilities(self, weights: UtilityWeights) -> list[float]:
        """Returns U of each class's next slot, bit for bit as :class:`UtilityScale` computes it."""
        alpha, beta, gamma = weights.alpha, weights.beta, weights.gamma * LOCALITY_SHARE
        share = sunk_share(weights)
        return [
            alpha * throughput - beta * (cost * share if sunk else cost) + gamma * locality
            for throughput, cost, sunk, locality in self._terms
        ]


def estimates_at(
    sites: Sequence[EquivalenceClass],
    work: WorkSize,
    needed_bytes: int,
    fetch_s_in: Callable[[str], float],
) -> list[Estimate]:
    """Returns the estimate in each class for an action of a given size, with no input near.

    Args:
        sites: the classes of one signature, at least one.
        work: the size of the action.
        needed_bytes: the total size of its components and inputs.
        fetch_s_in: returns the seconds to fetch the inputs to a worker of a pool.
    """
    found: list[Estimate] = []
    rate, seconds = sites[0].rate, sites[0].rate.seconds(work)
    pool, fetch_s = sites[0].pool, fetch_s_in(sites[0].pool)
    for site in sites:
        if site.pool != pool:
            pool = site.pool
            fetch_s = fetch_s_in(pool)
        if site.rate is not rate:  # classes of one kind of worker are adjacent
            rate = site.rate
            seconds = rate.seconds(work)
        run_s = seconds * site.slowdown
        start_s = site.load_s + fetch_s
        second_s = start_s + run_s if site.first_tier == RUN else start_s
        loss_s = expected_loss_s(start_s + run_s, site.reload_s) if site.spot else 0.0
        instance_s = site.paid_s + (run_s + fetch_s) * rate.share
        near, price = site.near_bytes, site.price_nanousd_per_hour
        nanousd = round(price * instance_s / NANO_HOUR_S)
        found.append(
            Estimate(
                start_s,
                site.remaining_s if site.remaining_s > second_s else second_s,
                site.first_tier,
                run_s,
                nanousd,
                near,
                needed_bytes,
                site.has_instance,
                near / needed_bytes if needed_bytes else 1.0,
                loss_s=loss_s,
                loss_nanousd=round(price * loss_s * rate.share / NANO_HOUR_S),
                fair_nanousd=nanousd
                if price
                else round(FAIR_SHARE_PRICE_NANOUSD_PER_HOUR * instance_s / NANO_HOUR_S),
            )
        )
    return found
