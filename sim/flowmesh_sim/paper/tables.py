"""Formats the tables of ``docs/evaluation.md`` from the results."""

from collections.abc import Sequence

from flowmesh_sim.paper.numbers import Results, figure, ratio
from flowmesh_sim.paper.plan import Json

BASELINES = ("monolithic", "ds", "dr", "fifo")
SIZES = (3, 6, 12)
NODES = (8, 24, 48)
PAPER_RATES = {("a", 8): 17.0, ("a", 48): 32.0, ("b", 8): 13.0, ("b", 48): 26.0}
"""The paper's tasks per minute (section 5.4), by group and number of workers."""
FRUGAL = 3
"""Workers of the fixed pools that cost about as much as the elastic ones."""
ABLATED = (
    ("no-consolidation", 6, "flowmesh"),
    ("flowmesh-fixed", 6, "flowmesh"),
    ("flowmesh-fixed", FRUGAL, "flowmesh"),
    ("random", 6, "flowmesh"),
    ("random-cost", 6, "flowmesh-cost"),
    ("no-consolidation-fixed", 6, "flowmesh-fixed"),
    ("random-fixed", 6, "flowmesh-fixed"),
    ("flowmesh", 6, "flowmesh"),
    ("flowmesh-cost", 6, "flowmesh-cost"),
)
"""The ablated system, its number of workers, and the full system."""
KJ_PER_KWH = 3600.0


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def fig5(results: Results, plan: Json) -> str:
    """Returns the table of cost, energy and products, and of each baseline over FlowMesh."""
    ours = results.of("fig5", "flowmesh")
    systems = (*BASELINES, "flowmesh-fixed", "flowmesh-latency", "flowmesh-cost", "flowmesh")
    rows = []
    for system in systems:
        found = results.of("fig5", system)
        rows.append(
            [
                plan["systems"][system]["title"],
                figure(found, "usd").text(2),
                figure(found, "used_usd").text(2),
                f"{figure(found, 'kj').median / KJ_PER_KWH:.2f}",
                figure(found, "latency_s").text(0),
                figure(found, "latency_p99_s").text(0),
                figure(found, "cdp").text(0),
                figure(found, "edp").text(0),
            ]
        )
    absolute = table(
        [
            "system",
            "cost, $",
            "used cost, $",
            "energy, kWh",
            "latency, s",
            "p99, s",
            "CDP, $ s",
            "EDP, kJ s",
        ],
        rows,
    )
    over = [
        [
            plan["systems"][system]["title"],
            *(
                ratio(results.of("fig5", system), ours, name).text(2)
                for name in ("usd", "used_usd", "kj", "cdp", "edp", "latency_s")
            ),
        ]
        for system in systems[:-1]
    ]
    head = ["over FlowMesh", "cost", "used cost", "energy", "CDP", "EDP", "latency"]
    bound = (
        f"The lower bound on cost is ${figure(ours, 'bound_usd').median:.2f}, on mean latency "
        f"{figure(ours, 'bound_latency_s').median:.1f} s."
    )
    return "\n\n".join([absolute, table(head, over), bound, picture("evaluation-fig5")])


def fig6(results: Results, plan: Json) -> str:
    """Returns the table of latency by number of workers."""
    rows = []
    for system in (*BASELINES, "flowmesh-fixed", "flowmesh-latency"):
        row = [plan["systems"][system]["title"]]
        for size in SIZES:
            found = results.of("fig6", system, workers=size)
            row += [figure(found, "latency_s").text(0), figure(found, "latency_p99_s").text(0)]
        rows.append(row)
    ours = [results.of("fig6", "flowmesh-fixed", workers=n) for n in SIZES]
    rows.append(
        ["lower bound", *(c for f in ours for c in (figure(f, "bound_latency_s").text(0), ""))]
    )
    head = ["system", *(c for n in SIZES for c in (f"{n} workers: mean, s", "p99, s"))]
    return "\n\n".join([table(head, rows), picture("evaluation-fig6")])


def table3(results: Results, plan: Json) -> str:
    """Returns the table of ablations."""
    rows = []
    titles = {
        ("flowmesh-fixed", 6): "without elasticity, the same six workers",
        ("flowmesh-fixed", FRUGAL): "without elasticity, about the same bill",
        ("flowmesh", 6): "FlowMesh (full)",
    }
    for system, workers, full in ABLATED:
        found, whole = results.of("table3", system, workers=workers), results.of("table3", full)
        rows.append(
            [
                titles.get((system, workers), plan["systems"][system]["title"]),
                figure(found, "latency_s").text(1),
                figure(found, "usd").text(2),
                figure(found, "used_usd").text(2),
                figure(found, "kj").text(0),
                ratio(found, whole, "latency_s").text(2),
                ratio(found, whole, "usd").text(2),
                ratio(found, whole, "used_usd").text(2),
                ratio(found, whole, "cdp").text(2),
            ]
        )
    head = [
        "system",
        "latency, s",
        "cost, $",
        "used cost, $",
        "energy, kJ",
        "latency over full",
        "cost over full",
        "used cost over full",
        "CDP over full",
    ]
    return table(head, rows)


def table4(results: Results, plan: Json) -> str:
    """Returns the table of failures: their cost, detection time and false detections."""
    del plan
    system = "flowmesh-fixed"
    calm = results.of("table4", system, variant="calm")
    crash = results.of("table4", system, variant="crash")
    noise = results.of("table4", system, variant="noise")
    right = results.of("table4", system, load="a-right", variant="right")
    wrong = results.of("table4", system, load="a-tight", variant="wrong")
    rows = [
        [
            "worker crash",
            ratio(crash, calm, "latency_s").text(3),
            ratio(crash, calm, "latency_p99_s").text(3),
            figure(crash, "detection_s").text(1, " s"),
            f"{figure(crash, 'falsely_lost').median:.0f} lost falsely",
        ],
        [
            "noise alone",
            ratio(noise, calm, "latency_s").text(3),
            ratio(noise, calm, "latency_p99_s").text(3),
            "",
            f"{figure(noise, 'falsely_lost').text(0)} lost falsely",
        ],
        [
            "wrong specification",
            ratio(wrong, right, "latency_s").text(3),
            ratio(wrong, right, "latency_p99_s").text(3),
            figure(wrong, "short_known_s").text(1, " s"),
            f"{figure(wrong, 'short').text(0)} attempts ran out of memory (with the right one "
            f"{figure(right, 'short').text(0)}), {figure(wrong, 'short_again').text(0)} of them "
            "after the first of their signature was known",
        ],
    ]
    return table(["error", "mean latency over without", "p99 over without", "detection", ""], rows)


def fig7(results: Results, plan: Json) -> str:
    """Returns the table of rates and queueing by number of workers."""
    rows = []
    for load in ("a-64", "b-64", "a-64-heavy", "b-64-heavy"):
        for nodes in NODES:
            found = results.of("fig7", "flowmesh-fixed", load=load, workers=nodes)
            rate = PAPER_RATES.get((load.removesuffix("-64"), nodes))
            far = figure(found, "makespan_s").median / figure(found, "bound_work_s").median
            rows.append(
                [
                    _load(load),
                    str(nodes),
                    figure(found, "runs_per_min").text(1),
                    figure(found, "steps_per_min").text(0),
                    f"{rate:.0f}" if rate else "",
                    figure(found, "queueing_s").text(0),
                    figure(found, "latency_s").text(0),
                    figure(found, "makespan_s").text(0),
                    figure(found, "bound_work_s").text(0),
                    f"{far:.2f}",
                    f"{100 * figure(found, 'utilisation').median:.0f} %",
                ]
            )
    del plan
    head = [
        "load",
        "workers",
        "workflows/min",
        "steps/min",
        "paper: tasks/min",
        "queueing, s",
        "latency, s",
        "makespan, s",
        "its bound, s",
        "over the bound",
        "devices busy",
    ]
    return "\n\n".join([table(head, rows), picture("evaluation-fig7")])


def _load(name: str) -> str:
    group = f"group {name[0].upper()}"
    return f"{group}, saturating" if name.endswith("heavy") else group


def fig9(results: Results, plan: Json) -> str:
    """Returns the table of scaling delays, and of an oracle's cost."""
    ours = results.of("fig9", "leased")
    rows = []
    for system in ("leased", "oracle-30", "oracle-120"):
        found = results.of("fig9", system)
        rows.append(
            [
                plan["systems"][system]["title"],
                figure(found, "lag_up_s").text(0),
                figure(found, "lag_down_s").text(0),
                figure(found, "usd").text(2),
                figure(found, "latency_s").text(0),
                figure(found, "latency_p99_s").text(0),
                ratio(ours, found, "usd").text(2),
                ratio(ours, found, "latency_s").text(2),
            ]
        )
    head = [
        "system",
        "from order to worker, s",
        "from idle to gone, s",
        "cost, $",
        "latency, s",
        "p99, s",
        "FlowMesh's cost over it",
        "FlowMesh's latency over it",
    ]
    return table(head, rows)


def sensitivity(results: Results, plan: Json) -> str:
    """Returns the table of figure 5's ratios with each constant halved and doubled."""
    variants = list(
        dict.fromkeys(c.variant for c in results.cells if c.experiment == "sensitivity")
    )
    systems = [s for s in plan["sensitivity"]["systems"] if s != "flowmesh"]
    rows = []
    for variant in variants:
        ours = results.of("sensitivity", "flowmesh", variant=variant)
        row, holds = [f"`{variant}`"], True
        for system in systems:
            found = results.of("sensitivity", system, variant=variant)
            cost, kj = ratio(found, ours, "usd"), ratio(found, ours, "kj")
            cdp, edp = ratio(found, ours, "cdp"), ratio(found, ours, "edp")
            row += [f"{x.median:.2f}" for x in (cost, kj, cdp, edp)]
            holds = holds and min(x.median for x in (cost, kj, cdp, edp)) > 1.0
        rows.append([*row, "yes" if holds else "no"])
    titles = [plan["systems"][s]["title"] for s in systems]
    measures = ("cost", "energy", "CDP", "EDP")
    head = ["constant", *(f"{t}: {m}" for t in titles for m in measures), "all above 1"]
    return table(head, rows)


def picture(name: str) -> str:
    """Returns a link to a picture of the page."""
    return f"![{name}](pictures/{name}.png)"


TABLES = {
    "fig5": fig5,
    "fig6": fig6,
    "table3": table3,
    "table4": table4,
    "fig7": fig7,
    "fig9": fig9,
    "sensitivity": sensitivity,
}
