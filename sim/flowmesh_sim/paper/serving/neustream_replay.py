"""NeuStream's diffusion evaluation, replayed: 48 points, four systems, and the published logs."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ruamel.yaml import YAML

from flowmesh_core.serving.profile import BatchProfile
from flowmesh_sim.serving.batch_schedulers import (
    MARGIN_S,
    FlowMeshScheduler,
    NeuStreamScheduler,
)
from flowmesh_sim.serving.clockwork import serve_by_clockwork
from flowmesh_sim.serving.image_device import profiled, serve
from flowmesh_sim.serving.image_requests import ImageModel, image_requests

SWEEPS = ("rate", "cv", "scale")
SMALL, LARGE = "DiT-S/2", "DiT-XL/2"


@dataclass(frozen=True, slots=True)
class Point:
    """A load of the evaluation.

    Attributes:
        model: its name in ``neustream.yaml``.
        sweep: the axis that it is on.
        rate: requests a second; ``cv`` and ``scale`` as in ``image_requests``.
        neustream_logs: requests in time, of each published log; empty for a load of our own.
        clockwork_logs: as above.
        late_logs: whether Clockwork's logs of this sweep are doubtful.
    """

    model: str
    sweep: str
    rate: float
    cv: float
    scale: float
    neustream_logs: tuple[int, ...] = ()
    clockwork_logs: tuple[int, ...] = ()
    late_logs: bool = False


@dataclass(frozen=True, slots=True)
class Counts:
    """How many of 500 requests each system serves in time."""

    flowmesh: int
    neustream: int
    clockwork: int
    padding_clockwork: int


@cache
def _published() -> Any:
    text = files("flowmesh_sim.paper.serving").joinpath("neustream.yaml").read_text()
    return YAML(typ="safe").load(text)["models"]


@cache
def published_model(name: str) -> ImageModel:
    """Returns a model with the published profiles."""
    facts = _published()[name]
    return ImageModel(_profile(facts["denoise_ms"]), _profile(facts["decode_ms"]))


def _profile(milliseconds: Sequence[float]) -> BatchProfile:
    return BatchProfile.of({size: ms / 1e3 for size, ms in enumerate(milliseconds, 1)})


def published_points() -> list[Point]:
    """Returns the 48 points of the evaluation."""
    return [
        point
        for model, facts in _published().items()
        for axis in SWEEPS
        for point in _sweep(model, axis, facts["sweeps"][axis])
    ]


def _sweep(model: str, axis: str, facts: dict[str, Any]) -> Iterable[Point]:
    rows = zip(facts[axis], facts["neustream"], facts["clockwork"], strict=True)
    for value, neustream, clockwork in rows:
        load = {name: float(facts[name]) for name in SWEEPS if name != axis}
        load[axis] = float(value)
        yield Point(
            model,
            axis,
            **load,
            neustream_logs=tuple(neustream),
            clockwork_logs=tuple(clockwork),
            late_logs=facts.get("late_logs", False),
        )


def neustream_scheduler(
    point: Point, model: ImageModel, *, margin_s: float = MARGIN_S
) -> NeuStreamScheduler:
    """Returns NeuStream with the artifact's settings for a point's model."""
    target = _published()[point.model]["neustream_target"]
    return NeuStreamScheduler(model, point.scale, target, margin_s=margin_s)


def clockwork_cap(point: Point) -> int:
    """Returns the largest batch of the artifact's Clockwork for a point's model."""
    return int(_published()[point.model]["clockwork_cap"])


def simulate(point: Point, seed: int = 0) -> Counts:
    """Serves a point's requests with each system; seed 0 is the artifact's own requests."""
    model = published_model(point.model)
    requests = image_requests(model, point.rate, point.cv, point.scale, seed)
    execute, cap = profiled(model), clockwork_cap(point)
    return Counts(
        serve(requests, model, FlowMeshScheduler(model), execute, point.scale).in_time,
        serve(requests, model, neustream_scheduler(point, model), execute, point.scale).in_time,
        serve_by_clockwork(requests, model, cap, execute, pads=False).in_time,
        serve_by_clockwork(requests, model, cap, execute, pads=True).in_time,
    )


def simulate_all(
    cases: Sequence[tuple[Point, int]], processes: int
) -> dict[tuple[Point, int], Counts]:
    """Simulates many points and seeds, several processes at a time."""
    with ProcessPoolExecutor(processes) as pool:
        counts = pool.map(simulate, *zip(*cases, strict=True))
        return dict(zip(cases, counts, strict=True))
