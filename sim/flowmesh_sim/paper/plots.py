"""Plots the pictures of ``docs/evaluation.md``."""

from pathlib import Path
from typing import Any

from flowmesh_sim.paper.numbers import Results, figure
from flowmesh_sim.paper.plan import Json
from flowmesh_sim.paper.tables import BASELINES, NODES, SIZES
from flowmesh_sim.run.plots import imported_pyplot

SIZE = (9.0, 3.2)


def _save(canvas: Any, path: Path) -> None:
    # Without dates and versions, so that equal results give equal files.
    canvas.savefig(path, dpi=110, metadata={"Software": None})
    imported_pyplot().close(canvas)


def fig5(results: Results, plan: Json, path: Path) -> None:
    """Plots cost, energy, CDP and EDP of each system."""
    systems = (*BASELINES, "flowmesh-fixed", "flowmesh-cost", "flowmesh")
    names = (("usd", "cost, $"), ("kj", "energy, kJ"), ("cdp", "CDP, $ s"), ("edp", "EDP, kJ s"))
    canvas, axes = imported_pyplot().subplots(1, 4, figsize=(12.0, 3.6), constrained_layout=True)
    for place, (name, title) in zip(axes, names, strict=True):
        spreads = [figure(results.of("fig5", s), name) for s in systems]
        middle = [s.median for s in spreads]
        errors = [
            [s.median - s.low for s in spreads],
            [s.high - s.median for s in spreads],
        ]
        colours = ["0.6"] * len(BASELINES) + ["tab:cyan", "tab:olive", "tab:blue"]
        place.bar(range(len(systems)), middle, yerr=errors, color=colours, capsize=2)
        titles = [plan["systems"][s]["title"] for s in systems]
        place.set_xticks(range(len(systems)), titles, rotation=60, ha="right", fontsize=7)
        place.set_title(f"{title} (simulated)", fontsize=9)
    _save(canvas, path)


def fig6(results: Results, plan: Json, path: Path) -> None:
    """Plots mean and p99 latency by number of workers."""
    canvas, axes = imported_pyplot().subplots(1, 2, figsize=SIZE, constrained_layout=True)
    for place, name in zip(axes, ("latency_s", "latency_p99_s"), strict=True):
        for system in (*BASELINES, "flowmesh-fixed", "flowmesh-latency"):
            cells = [results.of("fig6", system, workers=n) for n in SIZES]
            values = [figure(c, name).median for c in cells]
            style = "o-" if system.startswith("flowmesh") else "x--"
            place.plot(SIZES, values, style, label=plan["systems"][system]["title"])
        place.set(xlabel="workers", xticks=SIZES, ylim=(0, None), ylabel=f"{name[:-2]}, s")
    axes[0].legend(fontsize=6)
    canvas.suptitle("Latency by number of workers (simulated)", fontsize=9)
    _save(canvas, path)


def fig7(results: Results, plan: Json, path: Path) -> None:
    """Plots rate and queueing by number of workers."""
    del plan
    canvas, axes = imported_pyplot().subplots(1, 2, figsize=SIZE, constrained_layout=True)
    for place, name, title in zip(
        axes, ("runs_per_min", "queueing_s"), ("workflows/min", "queueing, s"), strict=True
    ):
        for load in ("a-64", "b-64", "a-64-heavy", "b-64-heavy"):
            cells = [results.of("fig7", "flowmesh-fixed", load=load, workers=n) for n in NODES]
            place.plot(NODES, [figure(c, name).median for c in cells], "o-", label=load)
        place.set(xlabel="workers", xticks=NODES, ylim=(0, None), ylabel=title)
    axes[0].legend(fontsize=7)
    canvas.suptitle("8 to 48 workers (simulated)", fontsize=9)
    _save(canvas, path)


FIGURES = {"fig5": fig5, "fig6": fig6, "fig7": fig7}
