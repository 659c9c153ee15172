"""Runs the points of the evaluation with real batches on one core."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class TwinRun:
    """What the real batches gave.

    Attributes:
        twin: the measured kernel.
        counts: by point.
        core_share: of a core, that this process had in the mean; well below 1 the caches were
            often another process's, and the figures are to be taken again.
    """

    twin: Twin
    counts: Mapping[Point, TwinCounts]
    core_share: float


def run_twin(points: Sequence[Point], print_line: Callable[[str], None]) -> TwinRun:
    """Measures the kernel, then serves every point with each scheduler.

    Args:
        points: the loads.
        print_line: called with a line after each.
    """
    began_s, busy_s = time.monotonic(), time.process_time()
    twin = Twin.measured()
    counts = {}
    for point in points:
        ours = twin.serve(point, partial(FlowMeshScheduler, margin_s=twin.margin_s))
        theirs = twin.serve(point, partial(neustream_scheduler, point, margin_s=twin.margin_s))
        whole = twin.serve_by_clockwork(point)
        counts[point] = TwinCounts(ours.in_time, theirs.in_time, whole.in_time)
        share = (time.process_time() - busy_s) / (time.monotonic() - began_s)
        print_line(
            f"real batches, {point.rate:g} requests/s, cv {point.cv:g}: {counts[point]}; "
            f"{share:.0%} of a core so far"
        )
    share = (time.process_time() - busy_s) / (time.monotonic() - began_s)
    return TwinRun(twin, counts, share)
