"""U(action, worker) = alpha * throughput - beta * cost + gamma * LOCALITY_SHARE * locality.

Each term is in [0, 1], scaled over the action's feasible workers: those that could take it now, and
those whose instance it could wait for. Other workers are left out, so they cannot change the
ranking. The scale is computed once per cycle, on the snapshot.
"""

from math import inf

import msgspec
from msgspec import structs

from flowmesh_api.v1.why import UtilityTerms
from flowmesh_core.fleet.snapshot import Tier
from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.placement.capacity import RUN, WAIT
from flowmesh_core.placement.settings import LOCALITY_SHARE, SUNK_COST_SHARE

NEARNESS: dict[Tier, float] = {
    Tier.DEVICE: 1.0,
    Tier.HOST: 0.8,
    Tier.DISK: 0.5,
    Tier.ZONE: 0.2,
    Tier.FAR: 0.0,
}
"""The weight of a byte: 1 on the device, where nothing moves; 0 in a far store, where all does."""
LEAST_FINISH_S = 1e-6


class Estimate(msgspec.Struct, frozen=True, gc=False):
    """The predicted result of placing an action of a group on a worker.

    Attributes:
        start_s: seconds before the first slot of the instance can run: loading and fetching.
        wait_s: seconds until a slot of the second tier can run. Each further tier waits ``run_s``
            longer.
        first_tier: the tier of the instance's next slot on the snapshot.
        run_s: the run time beside the other actions expected in the instance.
        nanousd: the action's share of the cost, including loading and transfer.
        near_bytes: the part of ``needed_bytes`` that is near, each byte weighted by its nearness.
        has_instance: whether an instance of the signature is open.
        locality: the share of the needed bytes that is near; 1 if none are needed.
        sunk: whether the worker is paid for even if it does not run the action. This holds for
            every connected worker, and for a worker not yet started if its pool keeps it anyway.
        loss_s: the expected loss of work through interruptions of a spot worker, in seconds;
            ``loss_nanousd`` is its cost. Both count in the utility, but nobody is charged for them.
        fair_nanousd: the amount that counts in fair shares: ``nanousd``, or, on a worker without a
            price, the cost at ``FAIR_SHARE_PRICE_NANOUSD_PER_HOUR``.
    """

    start_s: float
    wait_s: float
    first_tier: int
    run_s: float
    nanousd: int
    near_bytes: float
    needed_bytes: int
    has_instance: bool
    locality: float
    sunk: bool = True
    loss_s: float = 0.0
    loss_nanousd: int = 0
    fair_nanousd: int = 0

    @property
    def expected_nanousd(self) -> int:
        """The action's share of the cost plus the expected cost of interruptions."""
        return self.nanousd + self.loss_nanousd

    def begin_s(self, tier: int) -> float:
        """Returns the seconds from now until an action in a slot of this tier starts."""
        if tier == RUN:
            return self.start_s
        return self.wait_s + (tier - 1) * self.run_s

    def finish_s(self, tier: int) -> float:
        """Returns the seconds from now until an action in a slot of this tier is done."""
        seconds = self.start_s if tier == RUN else self.wait_s + (tier - 1) * self.run_s
        seconds += self.run_s + self.loss_s
        return seconds if seconds > LEAST_FINISH_S else LEAST_FINISH_S

    def locality_at(self, tier: int) -> float:
        """Returns the locality of a slot of this tier; 0 if the action must wait for the slot."""
        return self.locality if tier < WAIT else 0.0

    def nearer(self, near_bytes: float, saved_s: float) -> "Estimate":
        """Returns the estimate on a worker that is near some of the inputs."""
        near = min(float(self.needed_bytes), self.near_bytes + near_bytes)
        return structs.replace(
            self,
            start_s=max(0.0, self.start_s - saved_s),
            near_bytes=near,
            locality=share_near(near, self.needed_bytes),
        )


def share_near(near_bytes: float, needed_bytes: int) -> float:
    """Returns the share of the needed bytes that is near; 1 if none are needed."""
    return near_bytes / needed_bytes if needed_bytes else 1.0


def sunk_share(weights: UtilityWeights) -> float:
    """Returns the share of the cost that counts on a sunk worker.

    The worker's bill is the same whatever runs there; only the receipt on which it appears differs.
    So the cost counts little, just enough to prefer the cheaper of two equal workers. A user who
    weighs dollars above seconds is assumed to mean the receipt, so the whole cost counts (ADR 87).
    """
    return 1.0 if weights.thrifty else SUNK_COST_SHARE


class UtilityScale(msgspec.Struct, frozen=True, gc=False):
    """The scale of one group's terms.

    Attributes:
        earliest_s: the earliest predicted finish on any feasible worker, less ``common_s``.
        dearest_nanousd: the greatest predicted cost on any feasible worker.
        common_s: seconds of loading that serve later actions and are the same on every feasible
            worker. They are subtracted before finishes are compared, because they would hide the
            differences.
        sunk_share: the share of the cost that counts on sunk workers; see :func:`sunk_share`.
    """

    weights: UtilityWeights
    earliest_s: float
    dearest_nanousd: int
    common_s: float = 0.0
    sunk_share: float = 1.0

    def cost(self, prospect: Estimate) -> float:
        """Returns the predicted cost over the greatest one; it counts less on a sunk worker."""
        cost = prospect.expected_nanousd / self.dearest_nanousd
        return cost * self.sunk_share if prospect.sunk else cost

    def latest_tier(self, prospect: Estimate, utility: float) -> float:
        """Returns the last tier whose U is at least ``utility``; infinity if all tiers have that.

        The result is a fraction: round it down.
        """
        w = self.weights
        needed = utility + w.beta * self.cost(prospect)
        if needed <= 0.0:
            return inf
        finish_s = w.alpha * self.earliest_s / needed + self.common_s
        spare_s = finish_s - prospect.run_s - prospect.loss_s - prospect.wait_s
        return spare_s / max(prospect.run_s, 1e-9) + 1.0

    def throughput(self, prospect: Estimate, tier: int) -> float:
        """Returns the earliest finish over the finish in a slot of this tier."""
        finish_s = prospect.finish_s(tier) - self.common_s
        return self.earliest_s / finish_s if finish_s > self.earliest_s else 1.0

    def utility(self, prospect: Estimate, tier: int) -> float:
        """Returns U of a slot of this tier. A later tier never has a greater U."""
        w = self.weights
        return (
            w.alpha * self.throughput(prospect, tier)
            - w.beta * self.cost(prospect)
            + w.gamma * LOCALITY_SHARE * prospect.locality_at(tier)
        )

    def terms(self, prospect: Estimate, tier: int) -> UtilityTerms:
        """Returns U with its terms, for placements and ``fmesh explain``."""
        return UtilityTerms(
            throughput=self.throughput(prospect, tier),
            cost=self.cost(prospect),
            locality=prospect.locality_at(tier),
            utility=self.utility(prospect, tier),
            start_s=prospect.begin_s(tier),
            finish_s=prospect.finish_s(tier),
            nanousd=prospect.nanousd,
        )
