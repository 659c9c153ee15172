"""Services with calls in the whole simulator: each call is answered once, and the books balance."""

from typing import Any

import pytest

from flowmesh_sim.invariants.checker import Checker
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import scenario_of
from flowmesh_sim.serving.call_book import CallBook

CALLS = {"perSecond": 6.0, "forS": 20.0, "units": 20.0}
SERVICE = {"name": "ask", "replicas": 1, "memoryMib": 2000, "atS": 5.0, "untilS": 400.0}


def simulated(service: dict[str, Any], workers: int = 3, **changes: Any) -> Simulation:
    document = {
        "name": "calls",
        "seed": 3,
        "pools": [{"name": "p", "device": "cpu", "workers": workers, "hostMemoryMib": 4096}],
        "load": [
            {
                "shapes": ["sleepers"],
                "runs": 2,
                "rows": 4,
                "arrivals": {"kind": "poisson", "perMinute": 12},
                "options": {"seconds": 2.0},
            }
        ],
        "services": [SERVICE | service],
    }
    simulation = Simulation(scenario_of(document | changes), checker=Checker(every=1))
    simulation.run()
    return simulation


def book_of(simulation: Simulation) -> CallBook:
    assert simulation.calls is not None
    return simulation.calls.fabric.book


def test_calls_are_answered_and_the_service_pays() -> None:
    simulation = simulated({"atS": 0.0, "calls": CALLS})
    book = book_of(simulation)
    assert set(book.outcomes) <= {"ok", "no-replica"}
    assert book.outcomes["ok"] > 80
    control = simulation.fabric.control
    assert control is not None
    money = control.machine.state.book
    assert money.services_nanousd > 0
    paid = money.receipts_nanousd + money.services_nanousd + money.fabric_nanousd
    assert paid + money.unsettled_nanousd == money.bill_nanousd


def replicas_of(simulation: Simulation) -> list[int]:
    """Numbers of replicas that the leader wanted, as the plan changed."""
    return simulation.services.counts


@pytest.mark.slow
def test_replicas_follow_the_demand_and_leave_again() -> None:
    """One replica serves 11 a second; 20 a second want three."""
    service = {"atS": 0.0, "most": 3, "untilS": 900.0, "memoryMib": 2000}
    calls = CALLS | {"perSecond": 20.0, "forS": 60.0}
    simulation = simulated({**service, "calls": calls})
    book = book_of(simulation)
    grown = replicas_of(simulation)
    fixed = simulated({**service, "most": 1, "calls": calls})
    assert max(grown) == 3
    assert set(replicas_of(fixed)) == {1}
    assert book.outcomes["full"] < book_of(fixed).outcomes["full"] / 2
    simulation.fabric.engine.run(until_s=800.0, over=lambda: False)
    assert replicas_of(simulation)[-1] == 1, "five minutes each without demand"


def test_one_seed_is_one_sequence_of_events() -> None:
    traces = {simulated({"calls": CALLS}).trace.digest for _ in range(2)}
    assert len(traces) == 1


def test_a_world_without_calls_starts_no_router() -> None:
    simulation = simulated({})
    assert simulation.calls is None
    assert simulation.fabric.calls is None


@pytest.mark.slow
def test_a_leader_that_is_down_for_a_minute_costs_no_call() -> None:
    calls = CALLS | {"perSecond": 3.0, "forS": 80.0}
    fault = {"kind": "control-crash", "atS": 20.0, "forS": 60.0}
    service = {"atS": 0.0, "calls": calls}
    away = book_of(simulated(service, faults=[fault]))
    present = book_of(simulated(service))
    assert away.outcomes == present.outcomes
    assert away.outcomes["ok"] > 200
    router = {"kind": "router-crash", "atS": 20.0, "forS": 60.0}
    assert book_of(simulated(service, faults=[router])).outcomes["ok"] < away.outcomes["ok"] / 2
