"""A simulated worker prepares hosts by the real agent's rules: one a kind, when nothing loads."""

import pytest

from flowmesh_sim.kernel.environment import Environment
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import scenario_of
from flowmesh_sim.workers.standby import KEPT_S, SimStandbyHosts

PROCESS_S = 12.0


class Machine:
    """A worker's prepared hosts, its clock, and whether it loads."""

    def __init__(self) -> None:
        self.engine = Environment()
        self.loads = False
        self.hosts = SimStandbyHosts(self.engine, lambda: PROCESS_S, lambda: self.loads)
        self.hosts.allowed = True

    def pass_s(self, seconds: float) -> None:
        until_s = self.engine.now_s + seconds
        self.engine.at(until_s, lambda: None)
        self.engine.run(until_s=until_s, over=lambda: False)


def test_a_host_is_taken_at_any_time_and_the_next_is_begun_when_told_to_go_on() -> None:
    m = Machine()
    m.hosts.asked("vllm")
    m.pass_s(5.0)
    assert m.hosts.take("vllm") == pytest.approx(7.0)
    assert m.hosts.take("vllm") is None
    m.hosts.go_on()
    m.pass_s(20.0)
    assert m.hosts.take("vllm") == 0.0


def test_one_is_prepared_at_a_time_the_last_that_was_asked_for_first() -> None:
    m = Machine()
    m.loads = True
    m.hosts.asked("trl")
    m.hosts.asked("vllm")
    m.pass_s(100.0)
    assert m.hosts.take("vllm") is None
    m.loads = False
    m.hosts.go_on()
    m.pass_s(PROCESS_S + 1.0)
    assert m.hosts.take("vllm") == 0.0
    assert m.hosts.take("trl") == pytest.approx(PROCESS_S - 1.0)


def test_what_nobody_asks_for_any_more_is_not_prepared_again() -> None:
    m = Machine()
    m.hosts.asked("trl")
    m.pass_s(KEPT_S + 1.0)
    assert m.hosts.take("trl") == 0.0
    m.hosts.go_on()
    assert m.hosts.take("trl") is None


def test_a_worker_that_is_told_nothing_prepares_nothing() -> None:
    m = Machine()
    m.hosts.allowed = False
    m.hosts.asked("vllm")
    assert m.hosts.take("vllm") is None


@pytest.mark.parametrize(("holds_open", "host_s"), [(True, 0.0), (False, PROCESS_S)])
def test_the_first_host_imports_while_the_weights_come(holds_open: bool, host_s: float) -> None:
    pool = {"name": "gpu", "device": "h100", "workers": 1, "holdOpen": holds_open}
    load = {"shapes": ["b-full-sft"], "runs": 1, "rows": 12}
    simulation = Simulation(scenario_of({"name": "one", "pools": [pool], "load": [load]}))
    opened: list[float] = []
    (worker,) = simulation.provisioner.living()
    plain = worker.prepared.take

    def take(kind: str) -> float | None:
        left_s = plain(kind)
        opened.append(PROCESS_S if left_s is None else left_s)
        return left_s

    worker.prepared.take = take  # type: ignore[method-assign]
    assert simulation.run().succeeded == 1
    assert opened[0] == host_s
