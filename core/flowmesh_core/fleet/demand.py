"""Demand: which signatures were dispatched recently, and how often.

The machine counts dispatched actions. The capacity signal reads the demand to decide which engines
stay open. Demand may be lost without harm.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp

from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.snapshot import SignatureInfo
from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.units import Digest

FORGOTTEN_S = 3600.0
"""Seconds without an action after which a signature is forgotten."""
FIRST_GAP_S = 60.0
"""Expected seconds from the first action of a signature to the next."""
GAP_PACE = 0.3
"""How far the mean gap moves towards the last gap, as a share of their difference."""
MEAN_ACTIONS = 32.0
"""The most actions that the means of size and of waiting runs cover."""
AT_ONCE_S = 1.0
"""Actions dispatched within this time count as one arrival."""
ARRIVAL_WINDOW_S = 600.0
"""Time constant of the mean number of actions a second."""


@dataclass(slots=True)
class ArrivalStats:
    """How often a signature arrives, and what its actions are like.

    Attributes:
        first_s, last_s: when its first and its last arrival began.
        gap_s: mean seconds between arrivals.
        work: mean size of its actions.
        weights: the weights of its last action.
        waiting_runs: mean number of runs that wait for one of its actions.
        count: how many actions it had; older ones count less.
    """

    first_s: float
    last_s: float
    gap_s: float
    work: WorkSize
    weights: UtilityWeights
    waiting_runs: float = 1.0
    count: float = 1.0

    def per_s(self, now_s: float) -> float:
        """Returns the recent actions a second; the first ones count over ``FIRST_GAP_S``."""
        seen_s = max(FIRST_GAP_S, now_s - self.first_s)
        faded = self.count * exp((self.last_s - now_s) / ARRIVAL_WINDOW_S)
        return faded / (ARRIVAL_WINDOW_S * (1.0 - exp(-seen_s / ARRIVAL_WINDOW_S)))


@dataclass(frozen=True, slots=True)
class SignatureDemand:
    """A signature in demand.

    Attributes:
        gap_s: expected seconds between two arrivals.
        since_s: seconds since the last arrival.
        work: mean size of its actions.
        weights: the weights of its last action.
        per_s: recent actions a second.
        waiting_runs: mean number of runs that wait for one of its actions. A run that waits for
            several actions of a step counts as a fraction for each of them.
        foreseen: open steps of runs that will need the signature.
    """

    info: SignatureInfo
    gap_s: float
    since_s: float
    work: WorkSize
    weights: UtilityWeights
    per_s: float = 0.0
    waiting_runs: float = 1.0
    foreseen: int = 0


class DemandTracker:
    """Signatures in order of their last arrival; each is forgotten after ``FORGOTTEN_S``."""

    def __init__(self) -> None:
        self._arrivals: dict[Digest, ArrivalStats] = {}

    def count(
        self,
        signature: Digest,
        work: WorkSize,
        weights: UtilityWeights,
        waiting_runs: float,
        now_s: float,
    ) -> None:
        """Counts a dispatched action of a signature and the runs that wait for it."""
        known = self._arrivals.pop(signature, None)
        if known is None:
            new = ArrivalStats(now_s, now_s, FIRST_GAP_S, work, weights, waiting_runs)
            self._arrivals[signature] = new
            return
        passed_s = now_s - known.last_s
        if passed_s > AT_ONCE_S:
            known.gap_s += GAP_PACE * (passed_s - known.gap_s)
            known.count *= exp(-passed_s / ARRIVAL_WINDOW_S)
            known.last_s = now_s
        known.count += 1.0
        share = 1.0 / min(known.count, MEAN_ACTIONS)
        known.work, known.weights = known.work.towards(work, share), weights
        known.waiting_runs += share * (waiting_runs - known.waiting_runs)
        self._arrivals[signature] = known

    def now(self, now_s: float) -> Iterator[tuple[Digest, ArrivalStats]]:
        """Yields the known signatures, in order of their last arrival, and forgets old ones."""
        for signature, arrivals in list(self._arrivals.items()):
            if now_s - arrivals.last_s > FORGOTTEN_S:
                del self._arrivals[signature]
            else:
                yield signature, arrivals
