"""Services in the simulator: their replicas hold memory, outlive faults, and are paid for."""

from typing import Any

from flowmesh_sim.invariants.checker import Checker
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import scenario_of

SERVICE = {"name": "ask", "replicas": 2, "memoryMib": 2000, "untilS": 40.0}
LOAD = {
    "shapes": ["sleepers"],
    "runs": 6,
    "rows": 8,
    "arrivals": {"kind": "poisson", "perMinute": 12},
    "options": {"seconds": 2.0},
}
FAULTS = [
    {"kind": "crash", "atS": 6.0},
    {"kind": "host-crash", "atS": 12.0},
    {"kind": "control-crash", "atS": 18.0, "forS": 2.0},
]


def simulated(**changes: Any) -> Simulation:
    document = {
        "name": "services",
        "seed": 3,
        "pools": [{"name": "p", "device": "cpu", "workers": 2, "hostMemoryMib": 4096}],
        "load": [LOAD],
        "services": [SERVICE],
    }
    simulation = Simulation(scenario_of(document | changes), checker=Checker(every=1))
    simulation.run()
    return simulation


def test_a_service_pays_for_its_replicas_and_the_books_balance_through_faults() -> None:
    for faults in ([], FAULTS):
        control = simulated(faults=faults).fabric.control
        assert control is not None
        book = control.machine.state.book
        assert book.services_nanousd > 0
        paid = book.receipts_nanousd + book.services_nanousd + book.fabric_nanousd
        assert paid + book.unsettled_nanousd == book.bill_nanousd


def test_a_world_without_services_has_none_of_their_events() -> None:
    control = simulated(services=[]).fabric.control
    assert control is not None
    assert control.machine.state.book.services_nanousd == 0
    assert all(w.replicas is None and not w.serves for w in control.machine.state.workers.values())
