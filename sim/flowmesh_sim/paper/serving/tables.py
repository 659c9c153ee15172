"""The tables of ``docs/evaluation-serving.md``."""

from collections.abc import Sequence

from flowmesh_sim.paper.serving.goals import ReplayGoal
from flowmesh_sim.paper.serving.replay_results import Replay
from flowmesh_sim.paper.serving.twin_runs import TwinRun

_AXES = {"rate": "requests/s", "cv": "cv of the gaps", "scale": "latency scale"}


def goals(found: Sequence[ReplayGoal]) -> str:
    """The goals and what was reached."""
    rows = [(g.name, g.goal, g.reached, "reached" if g.met else "**not reached**") for g in found]
    return table(("", "goal", "here", ""), rows)


def sweep(replay: Replay, model: str, axis: str) -> str:
    """One sweep of a model: the logs beside the four simulated systems."""
    rows = [
        (
            f"{getattr(point, axis):g}",
            _logs(point.neustream_logs),
            str(counts.neustream),
            _logs(point.clockwork_logs) + ("?" if point.late_logs else ""),
            str(counts.clockwork),
            str(counts.padding_clockwork),
            str(counts.flowmesh),
        )
        for point, counts in replay.items()
        if (point.model, point.sweep) == (model, axis)
    ]
    heads = ("NeuStream, logs", "simulated", "Clockwork, logs", "simulated", "padding", "FlowMesh")
    return table((_AXES[axis], *heads), rows)


def twin(run: TwinRun) -> str:
    """The real batches beside the logs."""
    denoise = run.twin.model.denoise
    grows = denoise.at(20) / denoise.at(1)
    rows = [
        (
            f"{point.rate:g}",
            f"{point.cv:g}",
            _logs(point.neustream_logs),
            str(found.neustream),
            _logs(point.clockwork_logs),
            str(found.clockwork),
            str(found.flowmesh),
        )
        for point, found in run.counts.items()
    ]
    heads = ("NeuStream, logs", "NeuStream here", "Clockwork, logs", "Clockwork here")
    text = (
        f"A batch of 20 took {grows:.2f} times as long as a batch of 1. The process had "
        f"{run.core_share:.0%} of a core."
    )
    return f"{text}\n\n" + table(("requests/s", "cv", *heads, "FlowMesh here"), rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _logs(logs: Sequence[int]) -> str:
    return "/".join(map(str, logs))
