import pytest

from flowmesh_core.fleet.demand import FIRST_GAP_S, FORGOTTEN_S, Demand
from flowmesh_core.fleet.ready import Work
from flowmesh_core.graph.plan import Weights
from flowmesh_core.units import Digest

A, B = Digest("a"), Digest("b")


def count(demand, signature, *times_s):
    for now_s in times_s:
        demand.count(signature, Work(units=now_s), Weights(), now_s)


def test_the_gap_follows_how_often_a_signature_is_asked_for():
    demand = Demand()
    count(demand, A, 0.0)
    assert dict(demand.now(0.0))[A].gap_s == FIRST_GAP_S
    count(demand, A, *(5.0 * n for n in range(1, 40)))
    assert dict(demand.now(195.0))[A].gap_s == pytest.approx(5.0, rel=0.01)


def test_what_is_handed_out_together_is_one_demand():
    demand = Demand()
    count(demand, A, *(n / 100 for n in range(90)))
    assert dict(demand.now(1.0))[A].gap_s == FIRST_GAP_S
    assert dict(demand.now(1.0))[A].work.units == pytest.approx(0.89)


def test_what_nobody_asks_for_any_more_is_forgotten():
    demand = Demand()
    count(demand, A, 0.0)
    count(demand, B, 10.0)
    assert [s for s, _ in demand.now(FORGOTTEN_S)] == [A, B]
    assert [s for s, _ in demand.now(FORGOTTEN_S + 1.0)] == [B]
    assert [s for s, _ in demand.now(FORGOTTEN_S)] == [B], "for good"
