"""What a replay found."""

from collections.abc import Mapping
from dataclasses import dataclass

from flowmesh_sim.paper.serving.neustream_replay import Counts, Point

Replay = Mapping[Point, Counts]
"""The published points and one beyond them, with the artifact's own requests."""


@dataclass(frozen=True, slots=True)
class TwinCounts:
    """How many of 500 requests were in time with real batches."""

    flowmesh: int
    neustream: int
    clockwork: int
