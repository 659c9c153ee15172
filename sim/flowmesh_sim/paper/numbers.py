"""The results of a plan by cell, summarized over seeds as a median with its interval."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flowmesh_sim.paper.campaign import Campaign
from flowmesh_sim.paper.measure import Figures
from flowmesh_sim.paper.plan import Cell

ENOUGH = 10
"""With this many seeds, the second smallest and second largest bound the median at 97.9 %."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The summary of several seeds' values.

    Attributes:
        low, high: the second smallest and largest of ten or more, else the smallest and largest.
    """

    median: float
    low: float
    high: float
    count: int

    def text(self, digits: int = 1, unit: str = "") -> str:
        """Returns ``31.0 s [28.4, 35.1]``; without the interval for a single value."""
        median = f"{self.median:,.{digits}f}{unit}"
        if self.count == 1:
            return median
        return f"{median} [{self.low:,.{digits}f}, {self.high:,.{digits}f}]"


def spread(values: Iterable[float]) -> Spread:
    """Returns the summary of at least one value."""
    ordered = sorted(values)
    cut = 1 if len(ordered) >= ENOUGH else 0
    last = len(ordered) - 1
    middle = (ordered[last // 2] + ordered[(last + 1) // 2]) / 2
    return Spread(middle, ordered[cut], ordered[last - cut], len(ordered))


class Missing(Exception):  # noqa: N818 - not an error: a table waits for its simulations
    """A table needs simulations that are missing."""


class Results:
    """The results of all simulations.

    Attributes:
        cells: all cells of the plan.
    """

    def __init__(self, campaign: Campaign, cells: list[Cell]) -> None:
        """Reads every existing result."""
        self.cells = cells
        self._by_key = {_key(cell): campaign.found(cell) for cell in cells}

    def seeds(self, experiment: str) -> int:
        """Returns the smallest number of seeds of an experiment's cells."""
        counts = [
            len(self._by_key[_key(cell)]) for cell in self.cells if cell.experiment == experiment
        ]
        return min(counts, default=0)

    def of(
        self, experiment: str, system: str, *, load: str = "a", workers: int = 6, variant: str = ""
    ) -> dict[int, Figures]:
        """Returns a cell's results by seed.

        Raises:
            Missing: there are no results.
        """
        found = self._by_key.get((experiment, system, load, workers, variant))
        if not found:
            raise Missing(f"{experiment} {system} {load} {workers} {variant}")
        return found


def figure(results: dict[int, Figures], name: str) -> Spread:
    """Returns the summary of one measurement over the seeds."""
    return spread(f[name] for f in results.values())


def ratio(
    above: dict[int, Figures],
    below: dict[int, Figures],
    of: str | Callable[[Figures], float],
) -> Spread:
    """Returns the summary of the ratio of two systems' measurements, seed by seed.

    Raises:
        Missing: they have no seed in common.
    """
    common = sorted(above.keys() & below.keys())
    if not common:
        raise Missing("no seed in common")
    value = (lambda f: f[of]) if isinstance(of, str) else of
    return spread(value(above[s]) / max(1e-12, value(below[s])) for s in common)


def _key(cell: Cell) -> tuple[str, str, str, int, str]:
    return (cell.experiment, cell.system, cell.load, cell.workers, cell.variant)
