"""Plots of one simulation: who waits, who runs, how many workers, and how long runs took."""

from pathlib import Path
from typing import TYPE_CHECKING

from flowmesh_core.errors import FlowMeshError

if TYPE_CHECKING:
    from flowmesh_sim.measures import Result


def draw(result: "Result", path: Path) -> None:
    """Draws a result into a file; the format follows from its name.

    Raises:
        FlowMeshError: matplotlib is not installed, or does not know the format.
    """
    try:
        import matplotlib  # noqa: PLC0415 - of the sim extra
    except ImportError as e:
        raise FlowMeshError(
            "drawing needs matplotlib", remedy="pip install 'flowmesh-fabric[sim]'"
        ) from e
    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415 - after its backend is chosen

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
    try:
        figure.savefig(path)
    except ValueError as e:
        raise FlowMeshError(str(e), where=str(path), remedy="name it .png, .svg or .pdf") from e
    finally:
        pyplot.close(figure)
