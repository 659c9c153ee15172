from collections import defaultdict
from dataclasses import dataclass


@dataclass(slots=True)
class Totals:
    """Sums over the operations of one kind and outcome."""

    count: int = 0
    seconds: float = 0.0
    size_bytes: int = 0


class CountingMeter:
    """Sums in memory, by (operation, outcome)."""

    def __init__(self) -> None:
        self.totals: defaultdict[tuple[str, str], Totals] = defaultdict(Totals)

    def observe(self, operation: str, outcome: str, seconds: float, size_bytes: int) -> None:
        """As :meth:`flowmesh_store.metered.OperationMeter.observe`."""
        total = self.totals[operation, outcome]
        total.count += 1
        total.seconds += seconds
        total.size_bytes += size_bytes
