"""What was asked for of late, and how often: which engines a fleet does well to keep open.

The run machine counts what it hands out; the autoscaling signal reads it. Lost without harm.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp

from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.snapshot import SignatureInfo
from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.units import Digest

FORGOTTEN_S = 3600.0
"""A signature that nothing was handed out of for so long is no longer known."""
FIRST_GAP_S = 60.0
"""Expected seconds from the first action of a signature to the next."""
GAP_PACE = 0.3
AT_ONCE_S = 1.0
"""What is handed out within this time counts as one demand."""
LATELY_S = 600.0
"""How many actions come in a second is a mean over about this time."""


@dataclass(slots=True)
class ArrivalStats:
    """How often a signature was asked for, and what an action of it is like.

    Attributes:
        first_s, last_s: when something of it was first and last handed out.
        gap_s: mean seconds from one demand to the next.
        work, weights: of the last action.
        count: actions, each the less the longer ago it was.
    """

    first_s: float
    last_s: float
    gap_s: float
    work: WorkSize
    weights: UtilityWeights
    count: float = 1.0

    def per_s(self, now_s: float) -> float:
        """Actions a second, of late."""
        seen_s = max(AT_ONCE_S, now_s - self.first_s)
        faded = self.count * exp((self.last_s - now_s) / LATELY_S)
        return faded / (LATELY_S * (1.0 - exp(-seen_s / LATELY_S)))


@dataclass(frozen=True, slots=True)
class SignatureDemand:
    """A signature in demand.

    Attributes:
        gap_s: expected seconds between two demands.
        since_s: seconds since the last one.
        work, weights: of its last action.
        per_s: actions a second, of late.
    """

    info: SignatureInfo
    gap_s: float
    since_s: float
    work: WorkSize
    weights: UtilityWeights
    per_s: float = 0.0


class DemandTracker:
    """Signatures by when they were last asked for; none is known for ever."""

    def __init__(self) -> None:
        """Knows of none."""
        self._asked: dict[Digest, ArrivalStats] = {}

    def count(
        self, signature: Digest, work: WorkSize, weights: UtilityWeights, now_s: float
    ) -> None:
        """An action of a signature is handed out."""
        known = self._asked.pop(signature, None)
        if known is None:
            self._asked[signature] = ArrivalStats(now_s, now_s, FIRST_GAP_S, work, weights)
            return
        passed_s = now_s - known.last_s
        if passed_s > AT_ONCE_S:
            known.gap_s += GAP_PACE * (passed_s - known.gap_s)
            known.count *= exp(-passed_s / LATELY_S)
            known.last_s = now_s
        known.count += 1.0
        known.work, known.weights = work, weights
        self._asked[signature] = known

    def now(self, now_s: float) -> Iterator[tuple[Digest, ArrivalStats]]:
        """Those that are known, in the order in which they were last asked for."""
        for signature, asked in list(self._asked.items()):
            if now_s - asked.last_s > FORGOTTEN_S:
                del self._asked[signature]
            else:
                yield signature, asked
