"""Lists the simulations: the reference set by load, scaling, and the paper's Figure 5."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from flowmesh_sim.models.download_rates import UNLIMITED
from flowmesh_sim.paper.plan import Cell, read_plan
from flowmesh_sim.placement_evaluation.loads import FLEET, EvaluationLoad, Json
from flowmesh_sim.placement_evaluation.reference_set import (
    CONTROL,
    ORDERS,
    Member,
    cell_of,
    other_orders,
    shipped_member,
)
from flowmesh_sim.policies.baselines import BASELINES, with_baseline

SIZES = (8, 24, 48)
SCALED = ("a-64", "b-64", "a-64-heavy", "b-64-heavy")
"""Loads of the paper's Figure 7; the last two have eight times the rows."""
WEAK = SCALED[:2]
"""Those for which workflows grow with the fleet."""
RUNS_PER_WORKER, SLICES_PER_WORKER = 25, 12
"""Both grow with the fleet: more workflows on the same slices of data would share more work."""
FIGURE_5 = EvaluationLoad(
    "figure-5", "the paper's Figure 5", (read_plan()["loads"]["a"],), FLEET, 6
)
FIXED = "FlowMesh, fixed fleet, optimize: latency"

Members = Callable[[EvaluationLoad], Iterable[Member]]


def reference_cells(
    loads: Iterable[EvaluationLoad], members: Members, seeds: tuple[int, ...]
) -> Iterator[Cell]:
    """Yields for each load the shipped policy, then the members."""
    for load in loads:
        yield cell_of(load, shipped_member(load), seeds)
        for member in members(load):
            yield cell_of(load, member, seeds)


def order_cells(loads: Iterable[EvaluationLoad], seeds: tuple[int, ...]) -> Iterator[Cell]:
    """Yields simple orders with the shipped autoscaling."""
    for load in loads:
        for member in other_orders(load):
            yield cell_of(load, member, seeds)


def scaling_cells(seeds: tuple[int, ...]) -> Iterator[Cell]:
    """Yields the shipped policy on fixed fleets of H100s of several sizes.

    ``strong``: the same load on each; ``warm``: the same on the largest, with weights on the disks;
    ``weak``: workflows and slices in proportion to the workers, with weights on the disks;
    ``orders``: as ``strong`` on the largest, with simple orders of actions.
    """
    loads = read_plan()["loads"]
    for name in SCALED:
        for workers in SIZES:
            yield _scaled("strong", name, loads[name], workers, seeds)
        yield _scaled("warm", name, loads[name], SIZES[-1], seeds, facts=UNLIMITED)
        for order in ORDERS:
            yield _ordered(_scaled("orders", name, loads[name], SIZES[-1], seeds), order)
    for name in WEAK:
        for workers in (SIZES[0], SIZES[-1]):
            arrivals = {"kind": "closed", "concurrent": 8 * workers}
            grown = {"runs": RUNS_PER_WORKER * workers, "variants": SLICES_PER_WORKER * workers}
            load = {**loads[name], **grown, "arrivals": arrivals}
            yield _scaled("weak", name, load, workers, seeds, facts=UNLIMITED)


def _scaled(
    variant: str, name: str, load: Json, workers: int, seeds: tuple[int, ...], **more: Any
) -> Cell:
    pool = {"name": "a-h100", "device": "h100", "workers": workers}
    document = {"name": "scaling", "pools": [pool], "load": [load], "control": CONTROL, **more}
    return Cell("scaling", "FlowMesh", name, workers, variant, document, seeds)


def _ordered(cell: Cell, baseline: str) -> Cell:
    """Returns a cell with another order of actions; its fleet and autoscaling stay."""
    changed = with_baseline(cell.document, baseline, signal="shipped")
    document = {**changed, "pools": cell.document["pools"]}
    return replace(cell, system=BASELINES[baseline].title, document=document)


def figure_5_cells(seeds: tuple[int, ...]) -> Iterator[Cell]:
    """Yields the shipped policy under the paper's load: default weights, and those for one aim."""
    for optimize in ("balanced", "cost"):
        yield cell_of(FIGURE_5, shipped_member(FIGURE_5, optimize), seeds)
    pools = [{"name": f"{n}-{d}", "device": d, "workers": 2} for n, d in enumerate(FLEET)]
    load = [{**part, "optimize": "latency"} for part in FIGURE_5.load]
    document = {"name": "placement", "pools": pools, "load": load, "control": CONTROL}
    yield Cell("reference", FIXED, FIGURE_5.name, FIGURE_5.workers, "", document, seeds)
