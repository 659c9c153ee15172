"""Services with calls in the whole simulator: each call is answered once, and the books balance."""

from typing import Any

from flowmesh_sim.invariants.checker import Checker
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import scenario_of
from flowmesh_sim.serving.call_book import CallBook

CALLS = {"perSecond": 12.0, "forS": 20.0, "units": 20.0}
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
    assert book.outcomes["ok"] > 150
    control = simulation.fabric.control
    assert control is not None
    money = control.machine.state.book
    assert money.services_nanousd > 0
    paid = money.receipts_nanousd + money.services_nanousd + money.fabric_nanousd
    assert paid + money.unsettled_nanousd == money.bill_nanousd
