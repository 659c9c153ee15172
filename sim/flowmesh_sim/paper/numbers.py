"""Results of a plan by cell, and how several seeds are said: a median with its interval."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flowmesh_sim.paper.campaign import Campaign
from flowmesh_sim.paper.measure import Figures
from flowmesh_sim.paper.plan import Cell

ENOUGH = 10
"""Seeds from which on the second least and the second largest bound the median at 97.9 %."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Values of several seeds.

    Attributes:
        low, high: the second least and second largest of ten or more, else the least and largest.
    """

    median: float
    low: float
    high: float
    count: int

    def text(self, digits: int = 1, unit: str = "") -> str:
        """Such as ``31.0 s [28.4, 35.1]``; without the interval where there is one value."""
        said = f"{self.median:,.{digits}f}{unit}"
        if self.count == 1:
            return said
        return f"{said} [{self.low:,.{digits}f}, {self.high:,.{digits}f}]"


def spread(values: Iterable[float]) -> Spread:
    """The spread of at least one value."""
    ordered = sorted(values)
    cut = 1 if len(ordered) >= ENOUGH else 0
    last = len(ordered) - 1
    middle = (ordered[last // 2] + ordered[(last + 1) // 2]) / 2
    return Spread(middle, ordered[cut], ordered[last - cut], len(ordered))


class Missing(Exception):  # noqa: N818 - not an error: a table waits for its simulations
    """A table needs simulations that have not been made."""


class Results:
    """What was simulated, as tables ask for it.

    Attributes:
        cells: all of the plan.
    """

    def __init__(self, campaign: Campaign, cells: list[Cell]) -> None:
        """Reads every result that there is."""
        self.cells = cells
        self._by_key = {_key(cell): campaign.found(cell) for cell in cells}

    def seeds(self, experiment: str) -> int:
        """The fewest seeds that any of its cells has."""
        counts = [
            len(self._by_key[_key(cell)]) for cell in self.cells if cell.experiment == experiment
        ]
        return min(counts, default=0)

    def of(
        self, experiment: str, system: str, *, load: str = "a", workers: int = 6, variant: str = ""
    ) -> dict[int, Figures]:
        """A cell's results by seed.

        Raises:
            Missing: there are none yet.
        """
        found = self._by_key.get((experiment, system, load, workers, variant))
        if not found:
            raise Missing(f"{experiment} {system} {load} {workers} {variant}")
        return found


def figure(results: dict[int, Figures], name: str) -> Spread:
    """One figure over the seeds."""
    return spread(f[name] for f in results.values())


def ratio(
    above: dict[int, Figures],
    below: dict[int, Figures],
    of: str | Callable[[Figures], float],
) -> Spread:
    """A figure of one system over that of another, seed by seed.

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
