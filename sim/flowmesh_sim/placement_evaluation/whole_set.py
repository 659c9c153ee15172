"""Simulates the whole reference set, each member only as far as it can matter."""

from collections.abc import Mapping, Sequence
from functools import partial

from flowmesh_sim.paper.campaign import Campaign, Measure
from flowmesh_sim.paper.plan import Cell
from flowmesh_sim.placement_evaluation.early_stop import MemberLimits, limits_of
from flowmesh_sim.placement_evaluation.loads import EvaluationLoad
from flowmesh_sim.placement_evaluation.measure import measure
from flowmesh_sim.placement_evaluation.objective import FACTORS, OBJECTIVE
from flowmesh_sim.placement_evaluation.plan import reference_cells
from flowmesh_sim.placement_evaluation.reference_set import (
    cell_of,
    reference_set,
    shipped_member,
    small_set,
)
from flowmesh_sim.placement_evaluation.results import PlacementResults, best

AllLimits = Mapping[tuple[str, int], MemberLimits]
"""By load and seed."""


def simulate_whole_set(
    campaign: Campaign, loads: Sequence[EvaluationLoad], seeds: tuple[int, ...], *, processes: int
) -> None:
    """Runs the missing simulations of the shipped policy and of all members.

    The members with default pools are simulated to the end, since tables show all their figures.
    They give the limits for the others. One that was stopped with some seed, and by what it had
    come to is the best or better than the shipped policy nevertheless, is simulated to the end too.

    Raises:
        FlowMeshError: a simulation failed; names it.
    """
    campaign.run(list(reference_cells(loads, small_set, seeds)), processes=processes)
    cells = list(reference_cells(loads, reference_set, seeds))
    limits = {
        (load.name, seed): found
        for load in loads
        for seed, found in _limits(campaign, load, seeds).items()
    }
    campaign.run(cells, processes=processes, measure_of=partial(_measure_of, limits))
    while undecided := _undecided(PlacementResults(campaign, loads, cells), seeds):
        for cell in undecided:
            for seed in seeds:
                campaign.path(cell, seed).unlink(missing_ok=True)
        campaign.run(undecided, processes=processes)


def _limits(
    campaign: Campaign, load: EvaluationLoad, seeds: tuple[int, ...]
) -> dict[int, MemberLimits]:
    shipped = campaign.found(cell_of(load, shipped_member(load), seeds))
    members = [campaign.found(cell_of(load, member, seeds)) for member in small_set(load)]
    return {seed: limits_of(shipped[seed], [found[seed] for found in members]) for seed in seeds}


def _measure_of(limits: AllLimits, cell: Cell, seed: int) -> Measure:
    return partial(measure, limits=limits[cell.load, seed])


def _undecided(results: PlacementResults, seeds: tuple[int, ...]) -> list[Cell]:
    """Returns the members that may be better or the best, and were stopped with some seed."""
    found: dict[str, Cell] = {}
    for load in results.simulated_loads():
        compared = results.compared(load)
        leading = [best(compared, OBJECTIVE.times(factor)) for factor in FACTORS]
        for one in (*leading, *(c for c in compared if c.is_better)):
            if not one.is_whole:
                found[f"{load.name} {one.member.label}"] = cell_of(load, one.member, seeds)
    return list(found.values())
