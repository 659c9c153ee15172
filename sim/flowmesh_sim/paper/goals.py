"""The goals of the evaluation, and whether the results reach them."""

from collections.abc import Callable
from dataclasses import dataclass

from flowmesh_sim.paper.numbers import Missing, Results, figure, ratio, spread
from flowmesh_sim.paper.tables import BASELINES, FRUGAL, NODES, PAPER_RATES, SIZES, table

CRASH_PERCENT, CRASH_S = 10.0, 10.0
WRONG_PERCENT, WRONG_S = 5.0, 5.0
BOUNDS = {"a-64": 1.35, "b-64": 1.35, "a-64-heavy": 1.5, "b-64-heavy": 1.5}
"""The largest makespan over its closed-loop bound on the largest fleet, by load."""
LAG_S, ORACLE_COST, ORACLE_LATENCY = 60.0, 1.25, 1.0
"""The longest wait for a worker, and the largest cost and latency over the oracle's."""


@dataclass(frozen=True, slots=True)
class GoalVerdict:
    """The result for one goal."""

    found: str
    reached: bool


@dataclass(frozen=True, slots=True)
class Goal:
    """A row of the table of goals.

    Attributes:
        paper: the paper's result; ``reach`` is the goal here.
    """

    name: str
    paper: str
    reach: str
    judge: Callable[[Results], GoalVerdict]


def goals(results: Results, before: str = "") -> str:
    """Returns the table; a goal with missing simulations keeps its old row if it has one.

    Args:
        results: of the simulations.
        before: the old page with its table.
    """
    rows = []
    for goal in GOALS:
        try:
            verdict = goal.judge(results)
            cells = [verdict.found, "reached" if verdict.reached else "**not reached**"]
        except Missing:
            known = [row for row in before.splitlines() if row.startswith(f"| {goal.name} |")]
            cells = known[0].split(" | ")[3:] if known else ["not simulated", "**open**"]
            cells[-1] = cells[-1].removesuffix(" |")
        rows.append([goal.name, goal.paper, goal.reach, *cells])
    return table(["", "paper reports", "goal", "simulated here", ""], rows)


def _ratios(name: str, best: float, worst: float) -> Callable[[Results], GoalVerdict]:
    """Compares with the best and the worst baseline in this measure."""
    return lambda results: _better(results, "flowmesh", name, best, worst)


def _cost(results: Results) -> GoalVerdict:
    """Compares cost with the default weights and those for cost; one of them must reach it."""
    default, thrifty = (_better(results, s, "usd", 1.8, 3.8) for s in ("flowmesh", "flowmesh-cost"))
    text = f"default weights: {default.found}; cost: {thrifty.found}"
    return GoalVerdict(text, default.reached or thrifty.reached)


def _better(results: Results, system: str, name: str, best: float, worst: float) -> GoalVerdict:
    ours = results.of("fig5", system)
    found = [ratio(results.of("fig5", s), ours, name).median for s in BASELINES]
    text = f"{min(found):.2f}x against the best, {max(found):.2f}x against the worst"
    return GoalVerdict(text, min(found) >= best and max(found) >= worst)


def _latency(results: Results) -> GoalVerdict:
    """Compares latency with the best baseline at each size.

    Reached if the default weights or those for latency reach it at every size: an operator chooses
    one set for a fabric.
    """
    parts, reached = [], False
    for system, weights in (("flowmesh-fixed", "default weights"), ("flowmesh-latency", "latency")):
        sizes, all_of_them = [], True
        for size in SIZES:
            ours = results.of("fig6", system, workers=size)
            others = [results.of("fig6", s, workers=size) for s in BASELINES]
            mean = max(ratio(ours, other, "latency_s").median for other in others)
            p99 = max(ratio(ours, other, "latency_p99_s").median for other in others)
            sizes.append(f"{size} workers {mean:.2f}x (p99 {p99:.2f}x)")
            all_of_them = all_of_them and mean <= 1.0 and p99 <= 1.0
        parts.append(f"{weights}: {', '.join(sizes)}")
        reached = reached or all_of_them
    return GoalVerdict("over the best baseline; " + "; ".join(parts), reached)


def _ablation(results: Results) -> GoalVerdict:
    """Compares with the ablations.

    Consolidation and placement: latency and used cost, on the fixed pools, whose bill is constant.
    Elasticity: latency and bill on the same devices; the fleet of about the same bill is shown.
    """
    fixed = results.of("table3", "flowmesh-fixed")
    full = results.of("table3", "flowmesh")
    frugal = results.of("table3", "flowmesh-fixed", workers=FRUGAL)
    parts, reached = [], True
    for part, system in (
        ("consolidation", "no-consolidation-fixed"),
        ("multi-objective", "random-fixed"),
    ):
        found = results.of("table3", system)
        slower, dearer = (ratio(found, fixed, x).median for x in ("latency_s", "used_usd"))
        parts.append(f"without {part} latency {slower:.2f}x, used cost {dearer:.2f}x")
        reached = reached and min(slower, dearer) > 1.0
    for what, found in (("same devices", fixed), ("about the same bill", frugal)):
        slower, dearer = (ratio(found, full, x).median for x in ("latency_s", "usd"))
        parts.append(f"without elasticity, {what}, latency {slower:.2f}x, cost {dearer:.2f}x")
        reached = reached and (found is not fixed or min(slower, dearer) > 1.0)
    return GoalVerdict("; ".join(parts), reached)


def _crash(results: Results) -> GoalVerdict:
    calm = results.of("table4", "flowmesh-fixed", variant="calm")
    crash = results.of("table4", "flowmesh-fixed", variant="crash")
    noise = results.of("table4", "flowmesh-fixed", variant="noise")
    more = 100 * (ratio(crash, calm, "latency_s").median - 1)
    known, falsely = figure(crash, "detection_s").median, figure(noise, "falsely_lost").median
    text = f"{more:+.1f} % latency, {known:.1f} s detection; {falsely:.0f} lost falsely under noise"
    return GoalVerdict(text, more <= CRASH_PERCENT and known <= CRASH_S and falsely == 0)


def _wrong(results: Results) -> GoalVerdict:
    right = results.of("table4", "flowmesh-fixed", load="a-right", variant="right")
    wrong = results.of("table4", "flowmesh-fixed", load="a-tight", variant="wrong")
    more = 100 * (ratio(wrong, right, "latency_s").median - 1)
    known, repeated = figure(wrong, "short_known_s").median, figure(wrong, "short_again").median
    text = f"{more:+.1f} %, {known:.1f} s; {repeated:.0f} later attempts ran out again"
    return GoalVerdict(text, more <= WRONG_PERCENT and known <= WRONG_S and repeated == 0)


def _scale(results: Results) -> GoalVerdict:
    parts, reached = [], True
    for (group, nodes), rate in PAPER_RATES.items():
        found = results.of("fig7", "flowmesh-fixed", load=f"{group}-64", workers=nodes)
        runs, steps = (figure(found, x).median for x in ("runs_per_min", "steps_per_min"))
        parts.append(f"{group.upper()} {nodes}: {runs:.1f} workflows, {steps:.0f} steps")
        reached = reached and runs > rate
    return GoalVerdict(f"a minute, {'; '.join(parts)}", reached)


def _bound(results: Results) -> GoalVerdict:
    """Compares the makespan with the closed loop's bound; the largest fleet must be near it."""
    parts, reached = [], True
    for load, most in BOUNDS.items():
        cells = [results.of("fig7", "flowmesh-fixed", load=load, workers=n) for n in NODES]
        far = [
            spread(f["makespan_s"] / f["bound_closed_s"] for f in c.values()).median for c in cells
        ]
        parts.append(f"{load}: {' / '.join(f'{x:.2f}x' for x in far)}")
        reached = reached and far[-1] <= most
    return GoalVerdict(f"{'; '.join(parts)} at {' / '.join(map(str, NODES))} workers", reached)


def _elastic(results: Results) -> GoalVerdict:
    ours = results.of("fig9", "leased")
    oracle = results.of("fig9", "oracle-120")
    lag = figure(ours, "lag_up_s").median
    cost, slow = (ratio(ours, oracle, x).median for x in ("usd", "latency_s"))
    return GoalVerdict(
        f"{lag:.0f} s lag; {cost:.2f}x the oracle's cost, {slow:.2f}x its latency",
        lag <= LAG_S and cost <= ORACLE_COST and slow <= ORACLE_LATENCY,
    )


GOALS = (
    Goal("Fig. 5 cost", "1.8-3.8x lower", "≥ 1.8x best, ≥ 3.8x worst", _cost),
    Goal("Fig. 5 energy", "1.3-2.0x lower", "≥ 1.3x best, ≥ 2.0x worst", _ratios("kj", 1.3, 2.0)),
    Goal("CDP", "2-10x better", "≥ 2x best, ≥ 10x worst", _ratios("cdp", 2.0, 10.0)),
    Goal("EDP", "2-10x better", "≥ 2x best, ≥ 10x worst", _ratios("edp", 2.0, 10.0)),
    Goal("Fig. 6 latency", "equal or better", "≤ 1.0x at every size, p99 too", _latency),
    Goal(
        "Table 3 ablation",
        "each part helps",
        "latency and cost > 1x without it, on the same devices",
        _ablation,
    ),
    Goal("Table 4 crash", "+13.3 %, 30.0 s", "≤ +10 %, ≤ 10 s", _crash),
    Goal("Table 4 wrong spec", "+5.1 %, 8.6 s", "≤ +5 %, ≤ 5 s, none again", _wrong),
    Goal("Fig. 7, 8 tasks/min", "17 → 32 (A), 13 → 26 (B)", "more at each size", _scale),
    Goal("Fig. 7, 8 bound", "", "48 workers: light ≤ 1.35x, heavy ≤ 1.5x", _bound),
    Goal(
        "Fig. 9 elasticity",
        "30-60 s lag",
        "≤ 60 s; ≤ 1.25x the oracle's cost, ≤ 1x its latency",
        _elastic,
    ),
)
