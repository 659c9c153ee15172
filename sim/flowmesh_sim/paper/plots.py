"""The pictures of ``docs/evaluation.md``."""

from pathlib import Path
from typing import Any

from flowmesh_core.errors import FlowMeshError
from flowmesh_sim.paper.numbers import Results, figure
from flowmesh_sim.paper.plan import Json
from flowmesh_sim.paper.tables import BASELINES, NODES, SIZES

SIZE = (9.0, 3.2)


def _pyplot() -> Any:
    try:
        import matplotlib  # noqa: PLC0415 - of the sim extra
    except ImportError as e:
        raise FlowMeshError(
            "drawing needs matplotlib",
            remedy="in a checkout of FlowMesh: pip install '.[sim]' -c constraints/cpu.txt, or the "
            "same with `uv pip install`",
        ) from e
    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415 - after its backend is chosen

    return pyplot


def _save(made: Any, path: Path) -> None:
    # Without dates and versions, so that equal results give equal files.
    made.savefig(path, dpi=110, metadata={"Software": None})
    _pyplot().close(made)


def fig5(results: Results, plan: Json, path: Path) -> None:
    """Four bars a system."""
    systems = (*BASELINES, "flowmesh-fixed", "flowmesh-cost", "flowmesh")
    names = (("usd", "cost, $"), ("kj", "energy, kJ"), ("cdp", "CDP, $ s"), ("edp", "EDP, kJ s"))
    made, axes = _pyplot().subplots(1, 4, figsize=(12.0, 3.6), constrained_layout=True)
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
    _save(made, path)


def fig6(results: Results, plan: Json, path: Path) -> None:
    """Mean and p99 by number of workers."""
    made, axes = _pyplot().subplots(1, 2, figsize=SIZE, constrained_layout=True)
    for place, name in zip(axes, ("latency_s", "latency_p99_s"), strict=True):
        for system in (*BASELINES, "flowmesh-fixed", "flowmesh-latency"):
            cells = [results.of("fig6", system, workers=n) for n in SIZES]
            values = [figure(c, name).median for c in cells]
            style = "o-" if system.startswith("flowmesh") else "x--"
            place.plot(SIZES, values, style, label=plan["systems"][system]["title"])
        place.set(xlabel="workers", xticks=SIZES, ylim=(0, None), ylabel=f"{name[:-2]}, s")
    axes[0].legend(fontsize=6)
    made.suptitle("Latency by number of workers (simulated)", fontsize=9)
    _save(made, path)


def fig7(results: Results, plan: Json, path: Path) -> None:
    """Rate and queueing by number of nodes."""
    del plan
    made, axes = _pyplot().subplots(1, 2, figsize=SIZE, constrained_layout=True)
    for place, name, title in zip(
        axes, ("runs_per_min", "queueing_s"), ("workflows/min", "queueing, s"), strict=True
    ):
        for load in ("a-64", "b-64", "a-64-heavy", "b-64-heavy"):
            cells = [results.of("fig7", "flowmesh-fixed", load=load, workers=n) for n in NODES]
            place.plot(NODES, [figure(c, name).median for c in cells], "o-", label=load)
        place.set(xlabel="workers", xticks=NODES, ylim=(0, None), ylabel=title)
    axes[0].legend(fontsize=7)
    made.suptitle("8 to 48 workers (simulated)", fontsize=9)
    _save(made, path)


FIGURES = {"fig5": fig5, "fig6": fig6, "fig7": fig7}
