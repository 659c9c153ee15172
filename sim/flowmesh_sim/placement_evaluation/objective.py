"""The objective: dollars plus the value of the seconds in which users wait."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flowmesh_sim.paper.measure import Figures

FACTORS = (0.25, 1.0, 4.0)
"""The values of time at which the objective is shown, over the chosen one."""


@dataclass(frozen=True, slots=True)
class Objective:
    """Weighs a bill against latencies.

    Attributes:
        usd_per_s: the value of a second of one run's latency, in dollars.
    """

    usd_per_s: float

    def of(self, figures: "Figures") -> float:
        """Returns bill + value of the latencies of all runs, in dollars."""
        return figures["usd"] + self.usd_per_s * figures["latencies_s"]

    def times(self, factor: float) -> "Objective":
        """Returns the objective with another value of time."""
        return Objective(self.usd_per_s * factor)


OBJECTIVE = Objective(usd_per_s=0.00046)
"""The value at which both terms of the shipped policy were equal in the median of the seen loads,
with the scheduler of commit bd6e1155. It stays: later schedulers are judged by the same."""
