"""Simulates the whole reference set, each member only as far as it can matter."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from flowmesh_sim.paper.campaign import Campaign, Measure
from flowmesh_sim.paper.measure import Figures
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
from flowmesh_sim.placement_evaluation.results import (
    Compared,
    PlacementResults,
    median_of,
)
from flowmesh_sim.scenario import Scenario

AllLimits = Mapping[tuple[str, int], MemberLimits]
"""By load and seed."""
NOTHING: Figures = {"usd": 0.0, "latencies_s": 0.0, "latency_s": 0.0, "stopped_s": 0.0}
"""What a simulation has come to that was stopped before it began."""


def simulate_whole_set(
    campaign: Campaign, loads: Sequence[EvaluationLoad], seeds: tuple[int, ...], *, processes: int
) -> None:
    """Runs the missing simulations of the shipped policy and of all members.

    The members with default pools are simulated to the end, since tables show all their figures.
    They give the limits for the others. Another that cannot matter by its first seeds, whatever it
    does with the rest, is not simulated with these. One that was stopped with some seed, and by
    what it had come to is the best or better than the shipped policy nevertheless, is simulated to
    the end with all of them.

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
    for seed in seeds:
        results = PlacementResults(campaign, loads, cells)
        decided = {(load.name, x) for load in loads for x in _decided(results, load, seeds)}
        campaign.run(
            list(reference_cells(loads, reference_set, (seed,))),
            processes=processes,
            measure_of=partial(_measure_of, limits, decided),
        )
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


def _measure_of(
    limits: AllLimits, decided: Collection[tuple[str, str]], cell: Cell, seed: int
) -> Measure:
    if (cell.load, cell.system) in decided:
        return _stopped_at_once
    return partial(measure, limits=limits[cell.load, seed])


def _stopped_at_once(scenario: Scenario, seed: int) -> Figures:
    del scenario, seed
    return NOTHING


def _decided(
    results: PlacementResults, load: EvaluationLoad, seeds: tuple[int, ...]
) -> Iterator[str]:
    """Yields the members that are neither better nor the best even if more seeds cost nothing."""
    compared = results.compared(load)
    whole = [c for c in compared if c.is_whole and c.results.keys() == set(seeds)]
    objectives = [OBJECTIVE.times(factor) for factor in FACTORS]
    least = [min(median_of(c, objective) for c in whole) for objective in objectives]
    for one in compared:
        given = {seed: one.results.get(seed, NOTHING) for seed in seeds}
        at_best = Compared(one.member, given, one.shipped)
        found = zip(objectives, least, strict=True)
        if not at_best.is_better and all(median_of(at_best, j) > known for j, known in found):
            yield one.member.label


def _undecided(results: PlacementResults, seeds: tuple[int, ...]) -> list[Cell]:
    """Returns the members that may be better or the best, and were stopped with some seed."""
    found: dict[str, Cell] = {}
    for load in results.simulated_loads():
        compared = results.compared(load)
        leading = [
            min(compared, key=partial(median_of, objective=OBJECTIVE.times(factor)))
            for factor in FACTORS
        ]
        for one in (*leading, *(c for c in compared if c.is_better)):
            if not one.is_whole:
                found[f"{load.name} {one.member.label}"] = cell_of(load, one.member, seeds)
    return list(found.values())
