"""Engines of simulated workers sleep as those of real ones, and a switch back takes a wake."""

import importlib

import pytest

from flowmesh_sim.models.work_model import SLEEPING_ENGINES
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import scenario_of
from flowmesh_sim.workers.instance import SimInstance
from flowmesh_worker.engines.registry import installed_engines


def test_the_engines_that_sleep_are_those_that_ship() -> None:
    engines, found = installed_engines(), set()
    for name in engines.names():
        if name.startswith("llm."):
            module, _, attribute = engines.loads(name).partition(":")
            if hasattr(getattr(importlib.import_module(module), attribute), "sleep"):
                found.add(name)
    assert found == SLEEPING_ENGINES


def turns(**facts: float) -> Simulation:
    """Runs of two models on one device that holds one of them at a time."""
    document = {
        "name": "turns",
        "pools": [{"name": "gpu", "device": "4090", "workers": 1}],
        "load": [{"shapes": ["a-chain"], "runs": 3, "rows": 24}],
        "facts": facts,
    }
    return Simulation(scenario_of(document))


def test_a_switch_back_to_a_model_takes_a_wake_in_place_of_a_start() -> None:
    asleep, closed = turns(), turns(**{"sleep.host_limit_share": 0.0})
    found, without = asleep.run(), closed.run()
    assert (found.succeeded, without.succeeded) == (3, 3)
    assert found.makespan_s < without.makespan_s - 5.0


def test_only_the_first_sleep_pins_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    took_s: dict[SimInstance, list[float]] = {}
    sleep = SimInstance.sleep

    def recorded(instance: SimInstance, sleep_s: float) -> None:
        took_s.setdefault(instance, []).append(sleep_s)
        sleep(instance, sleep_s)

    monkeypatch.setattr(SimInstance, "sleep", recorded)
    simulation = turns()
    simulation.run()
    often = [(instance, s) for instance, s in took_s.items() if len(s) > 1]
    assert often
    for instance, (first_s, *later_s) in often:
        assert set(later_s) == {simulation.duties.wake_s(instance.weights_bytes)}
        assert first_s > 4 * later_s[0]
