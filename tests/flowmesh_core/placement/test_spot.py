"""Spot workers count by what their interruptions are expected to lose."""

import pytest
from tests.flowmesh_core.placement.builders import (
    HOUR_USD,
    action,
    signature,
    snapshot,
    where,
    worker,
)

from flowmesh_core.autoscaling.pool_model import PoolView, TemplateWorker
from flowmesh_core.costmodel import CostKey, CostModel
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.placement import candidates_of, decide
from flowmesh_core.placement.capacity import RUN
from flowmesh_core.placement.interruptions import expected_loss_s
from flowmesh_core.placement.settings import INTERRUPTIONS_PER_HOUR
from flowmesh_core.protocol.messages import WorkerShape

HOUR_S = 3600.0
TRAIN = signature("train", work_unit="samples")
COST = UtilityWeights(0.25, 1.0, 0.5)


@pytest.mark.parametrize(
    ("busy_s", "reload_s", "per_hour", "expected"),
    [
        (HOUR_S, 0.0, 0.0, 0.0),
        (0.0, 100.0, 1.0, 0.0),
        (HOUR_S, 0.0, 1.0, HOUR_S / 2),  # one interruption, which loses half of the hour
        (HOUR_S, 60.0, 1.0, HOUR_S / 2 + 60.0),
        (60.0, 30.0, 0.1, 0.1),
        (10 * HOUR_S, 0.0, 0.1, 5 * HOUR_S),
    ],
)
def test_the_expected_loss_is_the_rate_times_the_loss_of_one_interruption(
    busy_s: float, reload_s: float, per_hour: float, expected: float
) -> None:
    assert expected_loss_s(busy_s, reload_s, per_hour=per_hour) == pytest.approx(expected)


def test_the_rate_is_the_setting() -> None:
    by_setting = expected_loss_s(50.0, 5.0, per_hour=INTERRUPTIONS_PER_HOUR)
    assert expected_loss_s(50.0, 5.0) == by_setting > 0.0


def pair(spot_usd: float):
    """An on-demand worker for a dollar an hour and a spot worker, else equal."""
    price = round(spot_usd * HOUR_USD)
    return [worker("demand"), worker("spot", spot=True, price_nanousd_per_hour=price)]


def chosen(units: float, spot_usd: float, weights: UtilityWeights) -> str:
    one = action("a", TRAIN, weights=weights, work=WorkSize(units=units))
    return where(decide(snapshot(pair(spot_usd), [one], [TRAIN]), CostModel()))["a"]


def hours_of(units: float) -> float:
    one = action("a", TRAIN, work=WorkSize(units=units))
    found = candidates_of(one, snapshot([worker("demand")], [one], [TRAIN]), CostModel())
    return found[0].terms.finish_s / HOUR_S


SHORT, LONG = 1e3, 1e6


def test_the_loads_of_these_tests_are_short_and_long() -> None:
    assert hours_of(SHORT) < 0.1
    assert hours_of(LONG) > 10


def test_short_work_goes_where_it_is_cheap() -> None:
    assert chosen(SHORT, 0.3, UtilityWeights()) == "spot"
    assert chosen(SHORT, 0.3, COST) == "spot"


def test_long_work_goes_where_it_is_not_interrupted_unless_dollars_weigh_more() -> None:
    assert chosen(LONG, 0.3, UtilityWeights()) == "demand"
    assert chosen(LONG, 0.3, COST) == "spot"
    assert chosen(LONG, 0.9, COST) == "demand"


def test_the_loss_lengthens_the_predicted_finish_and_is_charged_to_nobody() -> None:
    one = action("a", TRAIN, work=WorkSize(units=LONG))
    view = snapshot(pair(1.0), [one], [TRAIN])
    found = {c.worker: c.terms for c in candidates_of(one, view, CostModel())}
    assert found["spot"].finish_s > found["demand"].finish_s
    assert found["spot"].nanousd == found["demand"].nanousd
    assert found["spot"].cost > found["demand"].cost
    reserved = {
        p.worker: p.reserve_nanousd
        for w in pair(1.0)
        for p in decide(snapshot([w], [one], [TRAIN]), CostModel()).placements
    }
    assert reserved["spot"] == reserved["demand"]


def test_a_pool_of_spot_workers_that_has_none_yet_counts_the_same() -> None:
    rate, work = CostModel().rate(CostKey.of(TRAIN), "nvidia-l40s", 0, 1.0), WorkSize(units=LONG)

    def template(shape: WorkerShape) -> TemplateWorker:
        pool = PoolView(shape.name, shape)
        return TemplateWorker(pool, rate, rate, 30.0, 30.0, 30.0, 0.0, 0, 0)

    demand, spot = (template(w.shape) for w in pair(1.0))
    for estimate in (TemplateWorker.estimate, TemplateWorker.with_instance):
        safe, risky = estimate(demand, work), estimate(spot, work)
        assert (safe.loss_s, safe.loss_nanousd) == (0.0, 0)
        busy_s = risky.start_s + risky.run_s
        assert risky.finish_s(RUN) - safe.finish_s(RUN) == pytest.approx(
            expected_loss_s(busy_s, 30.0)
        )
        assert risky.loss_nanousd > 0
        assert risky.nanousd == safe.nanousd
