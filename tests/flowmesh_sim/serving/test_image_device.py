"""Images served in virtual time, at some published points; `make paper-serving` replays all."""

import pytest

from flowmesh_core.serving.profile import BatchProfile
from flowmesh_sim.paper.serving.cpu_twin import LAYERS, batch_layers
from flowmesh_sim.paper.serving.goals import PEAK, error
from flowmesh_sim.paper.serving.neustream_replay import (
    LARGE,
    SMALL,
    Point,
    published_model,
    published_points,
    simulate,
)
from flowmesh_sim.serving.batch_schedulers import Choice, FlowMeshScheduler
from flowmesh_sim.serving.clockwork import serve_by_clockwork
from flowmesh_sim.serving.image_device import profiled, serve
from flowmesh_sim.serving.image_requests import ImageModel, ImageRequest, image_requests

MODEL = ImageModel(BatchProfile.of({1: 1.0, 2: 1.2}), BatchProfile.of({1: 1.0, 2: 2.0}))


def published(model: str, rate: float) -> Point:
    points = (p for p in published_points() if (p.model, p.sweep) == (model, "rate"))
    return next(p for p in points if p.rate == rate)


def test_there_are_48_published_points() -> None:
    assert len(published_points()) == 48


def test_requests_are_those_of_the_artifact() -> None:
    """Its stored trace begins with these; drawn anew from numpy's legacy generator at seed 0."""
    first, second = image_requests(published_model(SMALL), 2.0, 2.0, 3.0)[:2]
    assert (first.steps, second.steps) == (244, 247)
    assert first.deadline_s - first.arrived_s == pytest.approx(3 * (1.5 + 8.64 * 244 + 10.92) / 1e3)


@pytest.mark.slow
def test_at_the_papers_peak_the_shipped_batching_beats_every_baseline() -> None:
    counts = simulate(PEAK)
    assert counts.flowmesh >= 485
    assert counts.flowmesh >= counts.neustream - 5
    assert counts.flowmesh >= 5 * counts.clockwork
    assert counts.flowmesh >= 1.8 * counts.padding_clockwork


@pytest.mark.slow
@pytest.mark.parametrize("point", [published(SMALL, 4.0), published(LARGE, 0.4)], ids=str)
def test_simulated_baselines_agree_with_their_logs(point: Point) -> None:
    counts = simulate(point)
    assert error(point.neustream_logs, counts.neustream) <= 25
    assert error(point.clockwork_logs, counts.clockwork) <= 35


def test_a_scheduler_that_serves_one_at_a_time_is_told_apart() -> None:
    """What the comparison rests on is the batching: without it most replies are late."""
    model = published_model(SMALL)
    requests = image_requests(model, 4.0, 2.0, 3.0)[:60]
    shipped = FlowMeshScheduler(model)

    class OneAtATime:
        def choose(self, denoise, decode, now_s: float) -> Choice:  # type: ignore[no-untyped-def]
            choice = shipped.choose(denoise, decode, now_s)
            return Choice(choice.component, choice.batch[:1], choice.late)

    batched = serve(requests, model, FlowMeshScheduler(model), profiled(model), 3.0)
    single = serve(requests, model, OneAtATime(), profiled(model), 3.0)
    assert single.in_time < batched.in_time / 2


def test_every_request_is_answered_or_dropped() -> None:
    requests = [ImageRequest(f"{n}", 0.0, 3.0 + n, 2) for n in range(6)]
    served = serve(requests, MODEL, FlowMeshScheduler(MODEL, margin_s=0.0), profiled(MODEL), 3.0)
    assert served.in_time + served.dropped == 6
    assert served.in_time > 0


def test_clockwork_batches_unequal_step_counts_only_if_it_pads() -> None:
    requests = [ImageRequest("a", 0.0, 6.0, 2), ImageRequest("b", 0.0, 6.0, 3)]
    assert serve_by_clockwork(requests, MODEL, 2, profiled(MODEL), pads=False).in_time == 1
    assert serve_by_clockwork(requests, MODEL, 2, profiled(MODEL), pads=True).in_time == 2


def test_batches_of_unequal_requests_are_three_times_those_of_clockwork() -> None:
    model = published_model(SMALL)
    requests = image_requests(model, 4.0, 2.0, 3.0)[:150]
    ours = serve(requests, model, FlowMeshScheduler(model), profiled(model), 3.0)
    clockwork, padding = (
        serve_by_clockwork(requests, model, 9, profiled(model), pads=p) for p in (False, True)
    )
    assert ours.mean_batch >= 3 * clockwork.mean_batch
    assert ours.in_time > padding.in_time > clockwork.in_time


@pytest.mark.parametrize("growth", [1.9, 2.1, 3.5])
def test_real_batches_grow_as_the_published_step_does(growth: float) -> None:
    """With the layers found, a chain whose layers grow by `growth` grows by 1.83."""
    share = batch_layers(growth, 1.83) / LAYERS
    assert share * growth + (1 - share) == pytest.approx(1.83, abs=0.01)


def test_real_batches_that_grow_less_are_left_as_they_are() -> None:
    assert batch_layers(1.6, 1.83) == LAYERS
