"""U(action, worker) = alpha * throughput - beta * cost + gamma * locality (DESIGN §6).

Each term is in [0, 1] over that action's feasible workers: those that could take it now, and those
whose open lane it could wait for. A worker that is not feasible does not enter, so it cannot change
a rank. The coefficients are computed once a tick, on the snapshot.
"""

from dataclasses import dataclass, field
from math import inf

from flowmesh_core.fleet.snapshot import Tier, UtilityTerms
from flowmesh_core.graph.plan import Weights
from flowmesh_core.scheduler.accounts import RUN

NEARNESS: dict[Tier, float] = {
    Tier.DEVICE: 1.0,
    Tier.HOST: 0.8,
    Tier.DISK: 0.5,
    Tier.ZONE: 0.2,
    Tier.FAR: 0.0,
}
"""What a byte counts as near: on the device nothing moves, from a far store everything does."""
LEAST_FINISH_S = 1e-6


@dataclass(slots=True)
class Prospect:
    """What placing an action of a group on a worker is predicted to give.

    Attributes:
        start_s: seconds before the first place in the lane can run: loading and fetching.
        wait_s: seconds until a place of the second tier can run; each further tier waits ``run_s``
            more.
        first_tier: tier of the lane's next place on the snapshot.
        run_s: running time beside the actions expected in the lane.
        nanousd: the action's share, loading and transfer included.
        near_bytes: bytes needed, each weighted by its nearness; of ``needed_bytes``.
        lane: whether a lane of the signature is open.
        locality: share of the bytes needed that are near; 1 where none are needed.
        next_finish_s: seconds from now until an action in the lane's next place is done.
    """

    start_s: float
    wait_s: float
    first_tier: int
    run_s: float
    nanousd: int
    near_bytes: float
    needed_bytes: int
    lane: bool
    locality: float = field(init=False)
    next_finish_s: float = field(init=False)

    def __post_init__(self) -> None:
        """Works out what every policy reads."""
        self.locality = self.near_bytes / self.needed_bytes if self.needed_bytes else 1.0
        self.next_finish_s = self.finish_s(self.first_tier)

    def begin_s(self, tier: int) -> float:
        """Seconds from now until a place of this tier runs."""
        if tier == RUN:
            return self.start_s
        return self.wait_s + (tier - 1) * self.run_s

    def finish_s(self, tier: int) -> float:
        """Seconds from now until an action in a place of this tier is done."""
        return max(LEAST_FINISH_S, self.begin_s(tier) + self.run_s)

    def nearer(self, near_bytes: float, saved_s: float) -> "Prospect":
        """The same on a worker that holds some of the inputs."""
        return Prospect(
            start_s=max(0.0, self.start_s - saved_s),
            wait_s=self.wait_s,
            first_tier=self.first_tier,
            run_s=self.run_s,
            nanousd=self.nanousd,
            near_bytes=min(float(self.needed_bytes), self.near_bytes + near_bytes),
            needed_bytes=self.needed_bytes,
            lane=self.lane,
        )


@dataclass(frozen=True, slots=True)
class Scale:
    """What the terms of one group are measured against.

    Attributes:
        earliest_s: earliest predicted finish over the feasible workers.
        dearest_nanousd: of their predicted costs.
    """

    weights: Weights
    earliest_s: float
    dearest_nanousd: int

    @staticmethod
    def over(weights: Weights, prospects: list[Prospect]) -> "Scale":
        """The scale over all feasible workers of a group; at least one."""
        return Scale(
            weights,
            min([p.next_finish_s for p in prospects]),
            max(1, *[p.nanousd for p in prospects]),
        )

    def utilities(self, prospects: list[Prospect]) -> list[float]:
        """U of each worker's next place on the snapshot."""
        w = self.weights
        gain = w.alpha * self.earliest_s
        price = w.beta / self.dearest_nanousd
        gamma = w.gamma
        # the earliest is the least of these finishes, so that no ratio exceeds 1
        return [gain / p.next_finish_s - price * p.nanousd + gamma * p.locality for p in prospects]

    def latest_tier(self, prospect: Prospect, utility: float) -> float:
        """The last tier whose U is at least ``utility``; infinity where waiting costs nothing."""
        w = self.weights
        rest = w.gamma * prospect.locality - w.beta * prospect.nanousd / self.dearest_nanousd
        needed = utility - rest
        if needed <= 0.0:
            return inf
        finish_s = w.alpha * self.earliest_s / needed
        return (finish_s - prospect.run_s - prospect.wait_s) / max(prospect.run_s, 1e-9) + 1.0

    def utility(self, prospect: Prospect, tier: int) -> float:
        """U of a place of this tier. A later tier is never better than an earlier one."""
        w = self.weights
        throughput = self.earliest_s / prospect.finish_s(tier)
        return (
            w.alpha * (throughput if throughput < 1.0 else 1.0)
            - w.beta * prospect.nanousd / self.dearest_nanousd
            + w.gamma * prospect.locality
        )

    def terms(self, prospect: Prospect, tier: int) -> UtilityTerms:
        """The same, term by term, for placements and ``fmesh explain``."""
        return UtilityTerms(
            throughput=min(1.0, self.earliest_s / prospect.finish_s(tier)),
            cost=prospect.nanousd / self.dearest_nanousd,
            locality=prospect.locality,
            utility=self.utility(prospect, tier),
            start_s=prospect.begin_s(tier),
            finish_s=prospect.finish_s(tier),
            nanousd=prospect.nanousd,
        )
