import pytest

from flowmesh_core.fleet.demand import ARRIVAL_WINDOW_S, FIRST_GAP_S, FORGOTTEN_S, DemandTracker
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.units import Digest

A, B = Digest("a"), Digest("b")


def count(demand, signature, *times_s):
    for now_s in times_s:
        demand.count(signature, WorkSize(units=now_s), UtilityWeights(), 1.0, now_s)


def test_the_gap_follows_how_often_a_signature_is_asked_for():
    demand = DemandTracker()
    count(demand, A, 0.0)
    assert dict(demand.now(0.0))[A].gap_s == FIRST_GAP_S
    count(demand, A, *(5.0 * n for n in range(1, 40)))
    assert dict(demand.now(195.0))[A].gap_s == pytest.approx(5.0, rel=0.01)


def test_actions_assigned_together_count_as_one_demand():
    demand = DemandTracker()
    count(demand, A, *(n / 100 for n in range(90)))
    assert dict(demand.now(1.0))[A].gap_s == FIRST_GAP_S


def test_the_mean_size_follows_the_actions_of_late():
    demand = DemandTracker()
    for now_s in range(300):
        demand.count(A, WorkSize(units=10.0 if now_s < 100 else 20.0), UtilityWeights(), 1.0, now_s)
    assert dict(demand.now(300.0))[A].work.units == pytest.approx(20.0, rel=0.01)


def test_the_runs_that_wait_for_an_action_are_a_mean_too():
    demand = DemandTracker()
    for now_s in range(200):
        demand.count(A, WorkSize(), UtilityWeights(), float(now_s % 2), float(now_s))
    assert dict(demand.now(200.0))[A].waiting_runs == pytest.approx(0.5, abs=0.05)


def test_a_signature_that_is_no_longer_requested_is_forgotten():
    demand = DemandTracker()
    count(demand, A, 0.0)
    count(demand, B, 10.0)
    assert [s for s, _ in demand.now(FORGOTTEN_S)] == [A, B]
    assert [s for s, _ in demand.now(FORGOTTEN_S + 1.0)] == [B]
    assert [s for s, _ in demand.now(FORGOTTEN_S)] == [B], "for good"


def test_the_rate_of_a_new_signature_is_not_that_of_its_first_second():
    demand = DemandTracker()
    count(demand, A, *(n / 100 for n in range(12)))
    assert dict(demand.now(1.0))[A].per_s(1.0) == pytest.approx(12 / FIRST_GAP_S, rel=0.1)


def test_the_action_rate_is_known_from_the_first_minutes_on():
    demand = DemandTracker()
    count(demand, A, *(n / 2 for n in range(121)))
    assert dict(demand.now(60.0))[A].per_s(60.0) == pytest.approx(2.0, rel=0.1)
    count(demand, A, *(60.0 + n * 10.0 for n in range(1, 400)))
    assert dict(demand.now(4050.0))[A].per_s(4050.0) == pytest.approx(0.1, rel=0.05)


def test_the_action_rate_decreases_while_no_actions_arrive():
    demand = DemandTracker()
    count(demand, A, *(n * 10.0 for n in range(400)))
    before = dict(demand.now(3990.0))[A].per_s(3990.0)
    after = dict(demand.now(3990.0 + ARRIVAL_WINDOW_S))[A].per_s(3990.0 + ARRIVAL_WINDOW_S)
    assert after == pytest.approx(before / 2.718, rel=0.01)
