"""The rules that the shipped policy is judged by; each can be missed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

from flowmesh_sim.paper.numbers import Missing, Spread, figure, ratio, spread
from flowmesh_sim.paper.plan import Cell
from flowmesh_sim.paper.tables import table
from flowmesh_sim.placement_evaluation.loads import EvaluationLoad
from flowmesh_sim.placement_evaluation.objective import OBJECTIVE, Objective
from flowmesh_sim.placement_evaluation.plan import FIGURE_5, FIXED, SCALED, SIZES, WEAK
from flowmesh_sim.placement_evaluation.reference_set import (
    KEEP_ALIVE_S,
    SIGNALS,
    Member,
    shipped_member,
)
from flowmesh_sim.placement_evaluation.rental_bound import envelope
from flowmesh_sim.placement_evaluation.results import BySeed, Compared, PlacementResults, best

BEST_EACH, BEST_MEDIAN, FIFO_MEDIAN, WORSE = 1.10, 1.0, 1.3, 1.25
ENVELOPE, CHEAPEST_COST, CHEAPEST_LATENCY, FIXED_LATENCY = 1.5, 1.3, 3.0, 1.5
CLOSED = {"a-64": 1.35, "b-64": 1.35, "a-64-heavy": 1.5, "b-64-heavy": 1.5}
WARM_MOST, WEAK_LEAST = 1.35, 0.9
REACHED, NOT_REACHED = "reached", "**not reached**"


@dataclass(frozen=True, slots=True)
class Finding:
    """What the results say about a rule.

    Attributes:
        is_final: whether more simulations cannot turn a miss into its contrary.
    """

    text: str
    reached: bool
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table of verdicts.

    Attributes:
        needs: whether it needs the simulations of a cell.
    """

    name: str
    goal: str
    judge: Callable[[PlacementResults], Finding]
    needs: Callable[[PlacementResults, Cell], bool]


def verdict(rule: Rule, results: PlacementResults) -> tuple[str, str]:
    """Returns what was found and the verdict: open while simulations that it needs are missing."""
    try:
        finding = rule.judge(results)
    except Missing:
        return "", "not simulated"
    progress = results.progress(partial(rule.needs, results))
    if progress.complete or (finding.is_final and not finding.reached):
        return finding.text, REACHED if finding.reached else NOT_REACHED
    return finding.text, f"open: {progress}"


def verdicts(results: PlacementResults) -> str:
    """Returns the table of all rules."""
    rows = [[rule.name, rule.goal, *verdict(rule, results)] for rule in RULES]
    return table(["rule", "goal", "simulated", ""], rows)


def summary(results: PlacementResults) -> str:
    """Returns how many rules are reached, and of how many simulations."""
    reached = sum(verdict(rule, results)[1] == REACHED for rule in RULES)
    return f"{reached} of {len(RULES)} rules reached; {results.progress()}"


# -- the simulations that a rule needs -----------------------------------------------------------


def _of_loads(results: PlacementResults, cell: Cell) -> bool:
    return cell.experiment == "reference" and cell.load in {load.name for load in results.loads}


def _of_fifo(results: PlacementResults, cell: Cell) -> bool:
    members = {load.name: (shipped_member(load), fifo_member(load)) for load in results.loads}
    return _of_loads(results, cell) and cell.system in {m.label for m in members[cell.load]}


def _of_figure_5(results: PlacementResults, cell: Cell) -> bool:
    del results
    return cell.load == FIGURE_5.name


def _of_scaling(variant: str, results: PlacementResults, cell: Cell) -> bool:
    del results
    return cell.experiment == "scaling" and cell.variant == variant


# -- against the reference set -------------------------------------------------------------------


def fifo_member(load: EvaluationLoad) -> Member:
    """Returns FIFO with sharing, on the same pools with their defaults."""
    return Member("fifo-sharing", SIGNALS[0], KEEP_ALIVE_S, load.devices)


def _fifo(results: PlacementResults, load: EvaluationLoad) -> Compared:
    member = fifo_member(load)
    return Compared(member, results.of(load.name, member.label), results.shipped(load))


def _loads(results: PlacementResults) -> list[EvaluationLoad]:
    found = results.simulated_loads()
    if not found:
        raise Missing("no load")
    return found


def _none_better(results: PlacementResults) -> Finding:
    loads = _loads(results)
    worse = {load.name: sum(c.is_better for c in results.compared(load)) for load in loads}
    comparable = all(_is_number(c.ratio("usd")) for load in loads for c in results.compared(load))
    text = ", ".join(f"{name} {count}" for name, count in worse.items())
    return Finding(f"better members: {text}", comparable and not any(worse.values()), is_final=True)


def _is_number(s: Spread) -> bool:
    return s.median > 0


def over_best(results: PlacementResults, load: EvaluationLoad, objective: Objective) -> Spread:
    """Returns the shipped policy's objective over the best member's, seed by seed."""
    found = best(results.compared(load), objective)
    return ratio(found.shipped, found.results, objective.of)


def _near_the_best(results: PlacementResults) -> Finding:
    found = {load.name: over_best(results, load, OBJECTIVE) for load in _loads(results)}
    text = ", ".join(f"{name} {x.text(2)}" for name, x in found.items())
    return Finding(text, all(x.median <= BEST_EACH for x in found.values()), is_final=True)


def _better_in_the_median(results: PlacementResults) -> Finding:
    found = [over_best(results, load, OBJECTIVE) for load in _loads(results)]
    # Further members can only be better than the best of those that are known.
    return Finding(_middle(found), median(x.median for x in found) <= BEST_MEDIAN, is_final=True)


def _better_than_fifo(results: PlacementResults) -> Finding:
    found = [_fifo(results, load).ratio(OBJECTIVE.of) for load in _loads(results)]
    return Finding(_middle(found), median(x.median for x in found) >= FIFO_MEDIAN)


def _middle(found: list[Spread]) -> str:
    """Returns the median of several loads, and the least and the largest of their seeds."""
    least, most = min(x.low for x in found), max(x.high for x in found)
    return f"{median(x.median for x in found):.2f} [{least:.2f}, {most:.2f}], loads: {len(found)}"


def _not_worse_than_fifo(results: PlacementResults) -> Finding:
    found = {}
    for load in _loads(results):
        fifo = _fifo(results, load)
        for of, words in (("latency_p99_s", "p99"), ("kj", "energy")):
            found[f"{load.name} {words}"] = ratio(fifo.shipped, fifo.results, of)
    text = ", ".join(f"{name} {x.text(2)}" for name, x in found.items())
    return Finding(text, all(x.median <= WORSE for x in found.values()), is_final=True)


# -- against the bounds --------------------------------------------------------------------------


def rental_points(results: BySeed, devices: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """Returns the rental bounds by class of devices: median dollars and seconds over the seeds."""
    return {
        device: (
            figure(results, f"rental_{device}_usd").median,
            figure(results, f"rental_{device}_latency_s").median,
        )
        for device in devices
        if all(f"rental_{device}_usd" in f for f in results.values())
    }


def over_rental(results: BySeed, device: str) -> tuple[Spread, Spread]:
    """Returns cost and mean latency over the rental bound of a class."""
    return (
        spread(f["usd"] / f[f"rental_{device}_usd"] for f in results.values()),
        spread(f["latency_s"] / f[f"rental_{device}_latency_s"] for f in results.values()),
    )


def _near_the_envelope(results: PlacementResults) -> Finding:
    ours = results.shipped(FIGURE_5)
    points = envelope(rental_points(ours, FIGURE_5.devices))
    over = {device: over_rental(ours, device) for device in points}
    text = ", ".join(f"{d}: cost {u.text(2)}, latency {s.text(2)}" for d, (u, s) in over.items())
    reached = any(u.median <= ENVELOPE and s.median <= ENVELOPE for u, s in over.values())
    return Finding(text, reached, is_final=True)


def _near_the_cheapest(results: PlacementResults) -> Finding:
    ours = results.shipped(FIGURE_5, "cost")
    points = rental_points(ours, FIGURE_5.devices)
    device = min(points, key=lambda name: points[name][0])
    cost, slow = over_rental(ours, device)
    reached = cost.median <= CHEAPEST_COST and slow.median <= CHEAPEST_LATENCY
    return Finding(f"{device}: cost {cost.text(2)}, latency {slow.text(2)}", reached, is_final=True)


def _fixed_latency(results: PlacementResults) -> Finding:
    ours = results.of(FIGURE_5.name, FIXED)
    over = spread(f["latency_s"] / f["bound_latency_s"] for f in ours.values())
    return Finding(over.text(2), over.median <= FIXED_LATENCY, is_final=True)


# -- scaling -------------------------------------------------------------------------------------


def scaled(results: PlacementResults, variant: str, load: str, workers: int) -> BySeed:
    """Returns the results of a fixed fleet of this size."""
    return results.of(load, "FlowMesh", experiment="scaling", size=workers, variant=variant)


def over_closed(found: BySeed) -> Spread:
    """Returns the makespan over the bound of the closed loop."""
    return spread(f["makespan_s"] / f["bound_closed_s"] for f in found.values())


def weak_efficiency(results: PlacementResults, load: str) -> Spread:
    """Returns workflows a minute and worker on the largest fleet over those on the smallest."""
    least, most = (scaled(results, "weak", load, n) for n in (SIZES[0], SIZES[-1]))
    found = ratio(most, least, "runs_per_min")
    share = SIZES[0] / SIZES[-1]
    return Spread(found.median * share, found.low * share, found.high * share, found.count)


def _closed(results: PlacementResults) -> Finding:
    found = {n: over_closed(scaled(results, "strong", n, SIZES[-1])) for n in SCALED}
    reached = all(x.median <= CLOSED[name] for name, x in found.items())
    return Finding(_listed(found), reached, is_final=True)


def _warm(results: PlacementResults) -> Finding:
    found = {n: over_closed(scaled(results, "warm", n, SIZES[-1])) for n in SCALED}
    reached = all(x.median <= WARM_MOST for x in found.values())
    return Finding(_listed(found), reached, is_final=True)


def _weak(results: PlacementResults) -> Finding:
    found = {n: weak_efficiency(results, n) for n in WEAK}
    reached = all(x.median >= WEAK_LEAST for x in found.values())
    return Finding(_listed(found), reached, is_final=True)


def _listed(found: dict[str, Spread]) -> str:
    return ", ".join(f"{name} {x.text(2)}" for name, x in found.items())


RULES = (
    Rule("Reference set", "none better by 5 % in bill and in latency", _none_better, _of_loads),
    Rule(
        "Best in hindsight, each load",
        f"J ≤ {BEST_EACH:.2f} of the best member's",
        _near_the_best,
        _of_loads,
    ),
    Rule(
        "Best in hindsight, median",
        f"J ≤ {BEST_MEDIAN:.1f} of it",
        _better_in_the_median,
        _of_loads,
    ),
    Rule(
        "Elastic FIFO with sharing",
        f"its J ≥ {FIFO_MEDIAN} times ours in the median",
        _better_than_fifo,
        _of_fifo,
    ),
    Rule(
        "FIFO's tail and energy",
        f"p99 and energy ≤ {WORSE} times FIFO's",
        _not_worse_than_fifo,
        _of_fifo,
    ),
    Rule(
        "Figure 5, default weights",
        f"≤ {ENVELOPE} of a point of the rental bounds' envelope",
        _near_the_envelope,
        _of_figure_5,
    ),
    Rule(
        "Figure 5, optimize: cost",
        f"≤ {CHEAPEST_COST} the cheapest rental bound, ≤ {CHEAPEST_LATENCY:.0f} its latency",
        _near_the_cheapest,
        _of_figure_5,
    ),
    Rule(
        "Figure 5, fixed, optimize: latency",
        f"≤ {FIXED_LATENCY} the bound's latency",
        _fixed_latency,
        _of_figure_5,
    ),
    Rule(
        "48 workers, closed loop",
        "light ≤ 1.35 the bound, heavy ≤ 1.5",
        _closed,
        partial(_of_scaling, "strong"),
    ),
    Rule(
        "48 workers, warm disks",
        f"≤ {WARM_MOST} the bound",
        _warm,
        partial(_of_scaling, "warm"),
    ),
    Rule(
        "Weak scaling, 8 to 48 workers",
        f"≥ {WEAK_LEAST} workflows a minute and worker",
        _weak,
        partial(_of_scaling, "weak"),
    ),
)
"""All rules."""
