"""Runs the points of the evaluation with real batches on one core."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from flowmesh_sim.paper.serving.cpu_twin import Twin
from flowmesh_sim.paper.serving.neustream_replay import (
    SMALL,
    Point,
    neustream_scheduler,
    published_points,
)
from flowmesh_sim.paper.serving.replay_results import TwinCounts
from flowmesh_sim.serving.batch_schedulers import FlowMeshScheduler

_BURSTY_CV = 4.0


def twin_points() -> list[Point]:
    """Returns the sweep of rates of DiT-S/2, and its most uneven arrivals."""
    return [
        p
        for p in published_points()
        if p.model == SMALL and (p.sweep == "rate" or (p.sweep == "cv" and p.cv == _BURSTY_CV))
    ]


def run_twin(
    points: Sequence[Point], print_line: Callable[[str], None]
) -> tuple[Twin, Mapping[Point, TwinCounts]]:
    """Measures the kernel, then serves every point with both schedulers.

    Args:
        points: the loads.
        print_line: called with a line after each.
    """
    twin = Twin.measured()
    counts = {}
    for point in points:
        ours = twin.serve(point, partial(FlowMeshScheduler, margin_s=twin.margin_s))
        theirs = twin.serve(point, partial(neustream_scheduler, point, margin_s=twin.margin_s))
        counts[point] = TwinCounts(ours.in_time, theirs.in_time)
        print_line(f"real batches, {point.rate:g} requests/s, cv {point.cv:g}: {counts[point]}")
    return twin, counts
