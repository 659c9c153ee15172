"""Formats the tables of ``docs/evaluation-placement.md`` from the results."""

from collections.abc import Callable, Iterator
from functools import partial
from statistics import geometric_mean

from flowmesh_sim.paper.measure import Figures
from flowmesh_sim.paper.numbers import Missing, Spread, figure, ratio, spread
from flowmesh_sim.paper.tables import table
from flowmesh_sim.placement_evaluation.loads import EvaluationDraw, EvaluationLoad
from flowmesh_sim.placement_evaluation.objective import FACTORS, OBJECTIVE
from flowmesh_sim.placement_evaluation.plan import SCALED, SIZES
from flowmesh_sim.placement_evaluation.reference_set import ORDERS, other_orders, small_set
from flowmesh_sim.placement_evaluation.results import (
    BySeed,
    Compared,
    PlacementResults,
    best,
    with_objective,
)
from flowmesh_sim.placement_evaluation.verdicts import (
    fifo_member,
    over_closed,
    scaled,
    verdicts,
    weak_efficiency,
)
from flowmesh_sim.policies.baselines import BASELINES

MEASURES: dict[str, str | Callable[[Figures], float]] = {
    "cost": "usd",
    "latency": "latency_s",
    "p99": "latency_p99_s",
    "energy": "kj",
}
DOLLARS = {
    "idle workers": "idle",
    "starts of workers": "worker_starts",
    "downloads": "downloads",
    "starts of engines": "engine_starts",
    "unbatched work": "unbatched",
    "wrong device": "wrong_device",
}
SECONDS = {
    "no worker": "worker_starts",
    "downloads": "downloads",
    "starts of engines": "engine_starts",
    "waiting": "waiting",
    "wrong device": "wrong_device",
    "shared device": "shared_device",
}
SHOWN = 3
"""Members that are named, of those that are better in bill and latency."""
RESTART = ("pod", "agent", "process", "load", "capture")


def loads_table(drawn: EvaluationDraw, results: PlacementResults) -> str:
    """Returns the drawn loads; of those that are held back, only what kind they are."""
    rows = []
    for load in drawn.loads:
        shown = load in results.loads
        drawn_text = "; ".join(_words(part) for part in load.load) if shown else ""
        fleet = f"{load.workers}: {', '.join(load.devices)}" if shown else ""
        start = load.start if shown else ""
        status = "held back" if load.unseen else "seen"
        rows.append([load.name, load.kind, drawn_text, fleet, start, status])
    return table(["load", "kind", "drawn", "workers", "start", ""], rows)


def _words(part: dict[str, object]) -> str:
    arrivals = part["arrivals"]
    assert isinstance(arrivals, dict)
    pace = " ".join(f"{value}" for value in arrivals.values())
    return f"{part['runs']} runs of {part['rows']} rows from {part['variants']} slices, {pace}"


# -- policies ------------------------------------------------------------------------------------


def policies(results: PlacementResults) -> str:
    """Returns each baseline with default pools over the shipped policy, and the shipped itself."""
    names = [f"J at {factor:g} v" if factor != 1 else "J" for factor in FACTORS]
    head = ["load", "policy", *MEASURES, *names]
    rows = []
    for load in results.simulated_loads():
        ours = results.shipped(load)
        rows.append([load.name, "FlowMesh", *_absolute(ours)])
        rows += [_over_ours(load, c) for c in results.compared(load, small_set(load))]
    return table(head, rows)


def _absolute(ours: BySeed) -> list[str]:
    found = [("usd", 3, " $"), ("latency_s", 1, " s"), ("latency_p99_s", 0, " s"), ("kj", 0, " kJ")]
    cells = [figure(ours, name).text(digits, unit) for name, digits, unit in found]
    for factor in FACTORS:
        j = figure(with_objective(ours, OBJECTIVE.times(factor)), "j")
        cells.append(j.text(3, " $"))
    return cells


def _over_ours(load: EvaluationLoad, compared: Compared) -> list[str]:
    cells = [compared.ratio(of).text(2) for of in MEASURES.values()]
    cells += [compared.ratio(OBJECTIVE.times(factor).of).text(2) for factor in FACTORS]
    return [load.name, compared.member.label, *cells]


def one_for_all(results: PlacementResults) -> str:
    """Returns how each policy does that is chosen once, with default pools, for all loads.

    Nobody knows a load's best policy beforehand. Ratios are of a policy's medians over the shipped
    policy's, and geometric means over the loads. Beside the members are simple orders with the
    shipped autoscaling.
    """
    found: dict[str, dict[str, Compared]] = {}
    loads = results.simulated_loads()
    for load in loads:
        members = (m for m in small_set(load) if BASELINES[m.baseline].is_elastic)
        for compared in results.compared(load, (*members, *other_orders(load))):
            name = compared.member.label.rpartition(", ")[0]  # without the classes of devices
            found.setdefault(name, {})[load.name] = compared
    on_all = {name: by_load for name, by_load in found.items() if len(by_load) == len(loads)}
    rows = []
    for name, by_load in on_all.items():
        cells = [
            f"{geometric_mean(c.ratio(of).median for c in by_load.values()):.2f}"
            for of in MEASURES.values()
        ]
        ratios = {load: c.ratio(OBJECTIVE.of).median for load, c in by_load.items()}
        least, most = (choose(ratios, key=lambda load: ratios[load]) for choose in (min, max))
        ends = [f"{load} {ratios[load]:.2f}" for load in (least, most)]
        mean = geometric_mean(ratios.values())
        rows.append((mean, [name, *cells, f"{mean:.2f}", *ends]))
    head = ["policy, on all loads", *MEASURES, "J", "least J", "largest J"]
    return table(head, [cells for _, cells in sorted(rows)])


def hindsight(results: PlacementResults) -> str:
    """Returns the best member of the reference set by load and value of time."""
    rows = []
    for load in results.simulated_loads():
        compared = results.compared(load)
        for factor in FACTORS:
            objective = OBJECTIVE.times(factor)
            found = best(compared, objective)
            over = ratio(found.shipped, found.results, objective.of)
            rows.append([load.name, f"{factor:g} v", found.member.label, over.text(2)])
        better = [c.member.label for c in compared if c.is_better]
        shown = "; ".join(better[:SHOWN]) or "none"
        rows.append([load.name, "better in bill and latency", shown, f"{len(better)} members"])
    head = ["load", "value of time", "best of the members", "FlowMesh's J over it"]
    return table(head, rows)


# -- bounds --------------------------------------------------------------------------------------


def bounds(results: PlacementResults) -> str:
    """Returns the shipped policy over its bounds, and the bounds with shorter restarts."""
    rows = []
    for load in results.simulated_loads():
        ours = results.shipped(load)
        rows.append(
            [
                load.name,
                "old bound",
                figure(ours, "bound_usd").text(3),
                figure(ours, "bound_latency_s").text(1),
                "",
                "",
                "",
                _over(ours, "usd", "bound_usd"),
                _over(ours, "latency_s", "bound_latency_s"),
            ]
        )
        rows += [_rental(load, ours, device) for device in load.devices]
    head = [
        "load",
        "bound",
        "cost, $",
        "latency, s",
        f"restart, s ({' + '.join(RESTART)})",
        "cost, restart halved",
        "quartered",
        "FlowMesh's cost over it",
        "its latency over it",
    ]
    return table(head, rows)


def _rental(load: EvaluationLoad, ours: BySeed, device: str) -> list[str]:
    name = f"rental_{device}"
    if any(f"{name}_usd" not in f for f in ours.values()):
        return [load.name, f"rental, {device}", "some step does not fit", *[""] * 6]
    parts = [f"{figure(ours, f'{name}_restart_{part}_s').median:.1f}" for part in RESTART]
    return [
        load.name,
        f"rental, {device}",
        figure(ours, f"{name}_usd").text(3),
        figure(ours, f"{name}_latency_s").text(1),
        " + ".join(parts),
        figure(ours, f"{name}_usd_x0.5").text(3),
        figure(ours, f"{name}_usd_x0.25").text(3),
        _over(ours, "usd", f"{name}_usd"),
        _over(ours, "latency_s", f"{name}_latency_s"),
    ]


def _over(found: BySeed, above: str, below: str) -> str:
    return spread(f[above] / f[below] for f in found.values()).text(2)


def gap(results: PlacementResults) -> str:
    """Returns where the gap to the bound goes, in dollars and in seconds of all runs together."""
    rows = []
    for load, name, found in _accounts(results):
        rows.append(
            [
                load.name,
                name,
                figure(found, "zero_usd").text(3),
                *(figure(found, f"gap_usd_{part}").text(3) for part in DOLLARS.values()),
                figure(found, "usd").text(3),
            ]
        )
    dollars = table(["load", "policy", "bound, $", *DOLLARS, "bill, $"], rows)
    rows = []
    for load, name, found in _accounts(results):
        parts = [_a_run(found, f"gap_s_{part}").text(1) for part in SECONDS.values()]
        bound, latency = _a_run(found, "zero_s").text(1), figure(found, "latency_s").text(1)
        rows.append([load.name, name, bound, *parts, latency])
    seconds = table(["load", "policy", "alone on the fastest, s", *SECONDS, "latency, s"], rows)
    return f"{dollars}\n\n{seconds}"


def _accounts(results: PlacementResults) -> Iterator[tuple[EvaluationLoad, str, BySeed]]:
    for load in results.simulated_loads():
        yield load, "FlowMesh", results.shipped(load)
        try:
            yield load, "FIFO with sharing", results.of(load.name, fifo_member(load).label)
        except Missing:
            continue


def _a_run(found: BySeed, name: str) -> Spread:
    return spread(f[name] / f["runs"] for f in found.values())


# -- scaling -------------------------------------------------------------------------------------


def scaling(results: PlacementResults) -> str:
    """Returns how workflows a minute grow with the fleet; a cell without simulations says so."""
    rows = []
    for load in SCALED:
        cells = [
            _or_absent(partial(_scaling_cell, results, load, find)) for find in SCALING.values()
        ]
        rows.append([load, *cells])
    return table(["load", *SCALING], rows)


def _scaling_cell(
    results: PlacementResults, load: str, find: Callable[[PlacementResults, str], Spread]
) -> str:
    return find(results, load).text(2)


def _rate(size: int) -> Callable[[PlacementResults, str], Spread]:
    return lambda results, load: figure(scaled(results, "strong", load, size), "runs_per_min")


def _strong(results: PlacementResults, load: str) -> Spread:
    least, most = (scaled(results, "strong", load, size) for size in (SIZES[0], SIZES[-1]))
    return ratio(most, least, "runs_per_min")


def _with_order(name: str) -> Callable[[PlacementResults, str], Spread]:
    """Compares a simple order's makespan on the largest fleet; above 1 FlowMesh's is shorter."""

    def compared(results: PlacementResults, load: str) -> Spread:
        others = results.of(
            load,
            BASELINES[name].title,
            experiment="scaling",
            size=SIZES[-1],
            variant="orders",
        )
        return ratio(others, scaled(results, "strong", load, SIZES[-1]), "makespan_s")

    return compared


SCALING: dict[str, Callable[[PlacementResults, str], Spread]] = {
    **{f"{size} workers, workflows/min": _rate(size) for size in SIZES},
    "48 over 8": _strong,
    "48: makespan over the closed loop's bound": lambda results, load: over_closed(
        scaled(results, "strong", load, SIZES[-1])
    ),
    "the same, warm disks": lambda results, load: over_closed(
        scaled(results, "warm", load, SIZES[-1])
    ),
    "weak scaling: a worker's rate, 48 over 8": weak_efficiency,
    **{f"48: makespan with {BASELINES[name].title}": _with_order(name) for name in ORDERS},
}
"""The columns of the table of scaling."""


def render(results: PlacementResults, drawn: EvaluationDraw) -> dict[str, str]:
    """Returns the tables by name; one whose simulations are missing says so."""
    makers: dict[str, Callable[[], str]] = {
        "loads": lambda: loads_table(drawn, results),
        "verdicts": lambda: verdicts(results),
        "policies": lambda: policies(results),
        "one-for-all": lambda: one_for_all(results),
        "hindsight": lambda: hindsight(results),
        "bounds": lambda: bounds(results),
        "gap": lambda: gap(results),
        "scaling": lambda: scaling(results),
    }
    return {name: _or_absent(make) for name, make in makers.items()}


def _or_absent(make: Callable[[], str]) -> str:
    try:
        return make()
    except Missing:
        return "not simulated"
