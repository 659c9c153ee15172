"""Plots of a simulation: waiting and running actions, workers, and latencies of runs."""

from pathlib import Path
from typing import TYPE_CHECKING

from flowmesh_core.errors import FlowMeshError
from flowmesh_sim.kernel.event_trace import unwritable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from flowmesh_sim.replay.replay import Replayed
    from flowmesh_sim.run.measurements import SimulationResult


def draw(result: "SimulationResult", path: Path) -> None:
    """Plots a result into a file, in the format of the file's extension.

    Raises:
        FlowMeshError: matplotlib is not installed, or does not know the format.
    """
    pyplot = imported_pyplot()
    figure, (over, spread) = pyplot.subplots(2, 1, figsize=(8, 7), constrained_layout=True)
    times = [s.time_s for s in result.samples]
    for name in ("ready", "running", "runs"):
        over.plot(times, [getattr(s, name) for s in result.samples], label=name)
    over.set(xlabel="virtual seconds", ylabel="actions, runs")
    workers = over.twinx()
    workers.step(times, [s.workers for s in result.samples], color="0.5", label="workers")
    workers.set(ylabel="workers", ylim=(0, None))
    over.legend(loc="upper left")
    over.set_title(f"{result.scenario}, seed {result.seed}, policy {result.policy} (simulated)")
    ordered = sorted(r.latency_s for r in result.every)
    share = [(n + 1) / len(ordered) for n in range(len(ordered))]
    spread.plot(ordered, share)
    spread.set(xlabel="latency of a run, seconds", ylabel="share of runs", ylim=(0, 1))
    _save(pyplot, figure, path)


def draw_both(done: "Replayed", path: Path) -> None:
    """Plots a replay relative to its recording.

    Raises:
        FlowMeshError: as :func:`draw`.
    """
    pyplot = imported_pyplot()
    was, now = done.recorded, done.replayed
    bars = {
        "makespan": (was.makespan_s, now.makespan_s),
        "p50": (was.latency_s["p50"], now.latency_s["p50"]),
        "p99": (was.latency_s["p99"], now.latency_s["p99"]),
        "dollars": (was.usd, now.usd),
        "joules": (was.joules, now.joules),
        "goodput": (was.goodput_per_min, now.goodput_per_min),
    }
    figure, (ratios, spread) = pyplot.subplots(2, 1, figsize=(8, 7), constrained_layout=True)
    ratios.bar([*bars], [after / before if before else 0.0 for before, after in bars.values()])
    ratios.axhline(1.0, color="0.5", linewidth=1)
    ratios.set(ylabel="replayed / recorded")
    ratios.set_title(f"{was.runs} recorded runs under {done.policy} (simulated)")
    ordered = sorted(r.latency_s for r in done.result.every)
    spread.step(ordered, [(n + 1) / len(ordered) for n in range(len(ordered))])
    spread.axvline(was.latency_s["p50"], color="0.5", linestyle="--", label="recorded p50")
    spread.set(xlabel="latency of a run, seconds", ylabel="share of runs", ylim=(0, 1))
    spread.legend()
    _save(pyplot, figure, path)


def draw_points(
    points: "Sequence[tuple[float, float]]", path: Path, *, x: str, y: str, title: str
) -> None:
    """Plots points as a line into a file; raises as :func:`draw`."""
    pyplot = imported_pyplot()
    figure, axes = pyplot.subplots(figsize=(8, 5), constrained_layout=True)
    axes.plot(*zip(*points, strict=True), marker=".")
    axes.set(xlabel=x, ylabel=y, title=title)
    _save(pyplot, figure, path)


def imported_pyplot() -> "Any":
    """Imports ``matplotlib.pyplot``, which draws to files.

    Raises:
        FlowMeshError: it is not installed.
    """
    try:
        import matplotlib  # noqa: PLC0415 - of the sim extra
    except ImportError as e:
        raise FlowMeshError(
            "drawing needs matplotlib",
            remedy="pip install 'flowmesh-fabric[sim]', or the same with `uv pip install`",
        ) from e
    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415 - after its backend is chosen

    return pyplot


def _save(pyplot: "Any", figure: "Any", path: Path) -> None:
    try:
        figure.savefig(path)
    except ValueError as e:
        raise FlowMeshError(str(e), where=str(path), remedy="name it .png, .svg or .pdf") from e
    except OSError as e:
        raise unwritable(path, e) from e
    finally:
        pyplot.close(figure)
