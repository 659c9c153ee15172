"""The results of the evaluation's simulations, as far as they are there."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from flowmesh_sim.paper.campaign import Campaign
from flowmesh_sim.paper.measure import Figures
from flowmesh_sim.paper.numbers import Missing, Spread, figure, ratio
from flowmesh_sim.paper.plan import Cell
from flowmesh_sim.placement_evaluation.early_stop import BETTER
from flowmesh_sim.placement_evaluation.loads import EvaluationLoad
from flowmesh_sim.placement_evaluation.objective import Objective
from flowmesh_sim.placement_evaluation.reference_set import Member, reference_set, shipped_member

BySeed = dict[int, Figures]


@dataclass(frozen=True, slots=True)
class Compared:
    """A member of the reference set beside the shipped policy, seed by seed.

    Attributes:
        ratios: of a measure, the member's over the shipped policy's.
    """

    member: Member
    results: BySeed
    shipped: BySeed

    def ratio(self, of: str | Callable[[Figures], float]) -> Spread:
        """Returns the member's figure over the shipped policy's; above 1 the shipped is better."""
        return ratio(self.results, self.shipped, of)

    @property
    def is_whole(self) -> bool:
        """Whether none of its simulations was stopped early, so that its figures are exact."""
        return not any("stopped_s" in figures for figures in self.results.values())

    @property
    def is_better(self) -> bool:
        """Whether the member's bill and latency are both lower by more than a twentieth."""
        return all(self.ratio(of).median < 1 / BETTER for of in ("usd", "latency_s"))


@dataclass(frozen=True, slots=True)
class SimulationCount:
    """How many simulations are there, and how many there should be."""

    simulated: int
    planned: int

    @property
    def complete(self) -> bool:
        """Whether all are there."""
        return self.simulated == self.planned

    def __str__(self) -> str:
        """Says both in words."""
        return f"{self.simulated} of {self.planned} simulations"


class PlacementResults:
    """All results.

    Attributes:
        loads: that are judged.
    """

    def __init__(
        self,
        campaign: Campaign,
        loads: Sequence[EvaluationLoad],
        needed: Sequence[Cell],
        others: Sequence[Cell] = (),
    ) -> None:
        """Reads every existing result.

        Args:
            campaign: has them.
            loads: that are judged.
            needed: the cells of the whole evaluation.
            others: cells that are shown, but not needed.
        """
        self.loads = loads
        self._found = {_key(cell): campaign.found(cell) for cell in (*others, *needed)}
        self._needed = needed

    def progress(self, needs: Callable[[Cell], bool] = lambda _: True) -> SimulationCount:
        """Returns how many of the needed simulations are there, of these cells."""
        cells = [cell for cell in self._needed if needs(cell)]
        simulated = sum(len(self._found[_key(cell)]) for cell in cells)
        return SimulationCount(simulated, sum(len(cell.seeds) for cell in cells))

    def of(
        self,
        load: str,
        system: str,
        *,
        experiment: str = "reference",
        size: int = 0,
        variant: str = "",
    ) -> BySeed:
        """Returns a cell's results by seed.

        Raises:
            Missing: there are none.
        """
        found = self._found.get((experiment, system, load, size, variant))
        if not found:
            raise Missing(f"{experiment} {load} {system} {size} {variant}")
        return found

    def shipped(self, load: EvaluationLoad, optimize: str = "balanced") -> BySeed:
        """Returns the shipped policy's results."""
        return self.of(load.name, shipped_member(load, optimize).label)

    def value_usd_per_s(self) -> float:
        """Returns the value of time at which the shipped policy's two terms are equal.

        Raises:
            Missing: no load is simulated.
        """
        shipped = [shipped_member(load).label for load in self.loads]
        pairs = zip(self.loads, shipped, strict=True)
        found = [self._found.get(("reference", label, x.name, 0, "")) for x, label in pairs]
        values = [figure(f, "usd").median / figure(f, "latencies_s").median for f in found if f]
        if not values:
            raise Missing("no load")
        return median(values)

    def compared(
        self, load: EvaluationLoad, members: Iterable[Member] | None = None
    ) -> list[Compared]:
        """Returns the members whose results are there, beside the shipped policy's.

        Args:
            load: a load.
            members: all of the reference set where left out.
        """
        shipped = self.shipped(load)
        found = []
        for member in reference_set(load) if members is None else members:
            results = self._found.get(("reference", member.label, load.name, 0, ""))
            if results and results.keys() & shipped.keys():
                found.append(Compared(member, results, shipped))
        return found

    def simulated_loads(self) -> list[EvaluationLoad]:
        """Returns the loads for which the shipped policy and some members are there."""
        return [load for load in self.loads if self._has(load)]

    def _has(self, load: EvaluationLoad) -> bool:
        try:
            return bool(self.compared(load))
        except Missing:
            return False


def best(compared: Sequence[Compared], objective: Objective) -> Compared:
    """Returns the member with the least median objective, known in hindsight.

    One whose simulation was stopped early would only seem to be the best.
    """
    return min((c for c in compared if c.is_whole), key=lambda c: median_of(c, objective))


def median_of(compared: Compared, objective: Objective) -> float:
    """Returns the median of a member's objective, as far as it was simulated."""
    return figure(with_objective(compared.results, objective), "j").median


def with_objective(results: BySeed, objective: Objective) -> BySeed:
    """Returns the results with the objective as ``j``."""
    return {seed: {**f, "j": objective.of(f)} for seed, f in results.items()}


def _key(cell: Cell) -> tuple[str, str, str, int, str]:
    size = cell.workers if cell.experiment == "scaling" else 0
    return (cell.experiment, cell.system, cell.load, size, cell.variant)
