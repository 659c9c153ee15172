"""What expected requests ask of replicas; the measured demand takes their place later."""

from flowmesh_core.serving.plan.capacity import UTILISATION
from flowmesh_core.stages.expected_arrivals import ExpectedArrivals


def planned_per_s(arrivals: ExpectedArrivals) -> float:
    """Returns the rate to plan with, at ``UTILISATION`` of the best throughput.

    Requests wait in proportion to ``(1 + cv²) / 2 * u / (1 - u)`` where a share u of the throughput
    is used (Kingman's formula, with calls that take the same time each). With another ``cv`` than 1
    the utilisation is that with the wait of ``UTILISATION`` at 1. In the busiest minutes replicas
    may be always busy.
    """
    odds = UTILISATION / (1 - UTILISATION) * 2 / (1 + arrivals.cv**2)
    utilisation = odds / (1 + odds)
    return UTILISATION * max(arrivals.rate_per_s / utilisation, arrivals.peak_per_s)


def requests_at_once(arrivals: ExpectedArrivals, seconds: float) -> float:
    """Returns how many requests are under way where each takes so long (Little's law)."""
    return max(arrivals.rate_per_s, arrivals.peak_per_s) * seconds
