"""Simulated behaviour: batching, arrivals, elasticity, memory, policies, faults, recovery."""

from random import Random
from typing import Any, get_args

import pytest

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.machine.commands import Command
from flowmesh_core.machine.state import State
from flowmesh_sim.invariants.checker import Checker
from flowmesh_sim.policies.fifo import Fifo
from flowmesh_sim.run.arrivals import arrival_times
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import Arrivals, scenario_of
from flowmesh_sim.soak.checked_world import run_checked_world
from flowmesh_sim.soak.random_scenarios import FAULTS

QUICK = (34, 49, 73, 105, 113, 126)
"""Seeds of small worlds with many faults."""


def world(
    shapes: list[str], runs: int = 1, *, device: str = "cpu", workers: int = 1, **changes: Any
) -> Simulation:
    load = {"shapes": shapes, "runs": runs, **changes.pop("load", {})}
    pool = {"name": "p", "device": device, "workers": workers, **changes.pop("pool", {})}
    document = {"name": "t", "pools": [pool], "load": [load], **changes}
    return Simulation(scenario_of(document), checker=Checker(every=1))


def test_concurrent_actions_of_an_instance_take_longer_than_alone_and_less_than_in_turn() -> None:
    alone = world(["a-vote"], 1, device="h100-nvl").run()
    both = world(["a-vote"], 4, device="h100-nvl", load={"variants": 1000}).run()
    assert both.executed == 4 * alone.executed
    assert alone.makespan_s < both.makespan_s < 3 * alone.makespan_s


def test_equal_workflows_of_two_tenants_run_once() -> None:
    shared = world(["a-chain"], 6, device="h100-nvl", load={"variants": 1}).run()
    apart = world(["a-chain"], 6, device="h100-nvl", sharing="never", load={"variants": 1}).run()
    assert apart.executed == 6 * shared.executed
    assert sum(shared.hits.values()) == apart.executed - shared.executed
    assert apart.receipts_usd > shared.receipts_usd


def test_a_decaying_load_ends_when_its_rate_has_fallen() -> None:
    arrivals = Arrivals.model_validate({"kind": "decaying", "perMinute": 6, "toPerMinute": 0.6})
    ends = [arrival_times(arrivals, 200, Random(n))[-1] / 60 for n in range(20)]
    assert 70 < sum(ends) / len(ends) < 100  # 85 minutes by the formula
    first = arrival_times(arrivals, 200, Random(1))
    assert sum(t < 600 for t in first) > 40  # nearly 6 a minute at first


def test_a_closed_load_never_has_more_runs_open_than_it_may() -> None:
    arrivals = {"kind": "closed", "concurrent": 3}
    simulation = world(["sleepers"], 12, load={"arrivals": arrivals, "variants": 100, "rows": 3})
    result = simulation.run()
    assert result.succeeded == 12
    assert max(s.runs for s in result.samples) <= 3


def test_a_pool_grows_from_zero_and_shrinks_again() -> None:
    pool = {"workers": 0, "maximum": 3, "autoscale": True, "stabilizationS": 20, "targetS": 5}
    arrivals = {"kind": "poisson", "perMinute": 20}
    many = {"shapes": ["a-vote"], "runs": 12, "variants": 100, "arrivals": arrivals}
    late = {"shapes": ["noop-flat"], "runs": 1, "arrivals": {"afterS": 2000}}
    document = {
        "name": "t",
        "pools": [{"name": "p", "device": "4090", **pool}],
        "load": [many, late],
    }
    result = Simulation(scenario_of(document), checker=Checker(every=1)).run()
    assert result.succeeded == 13
    workers = {s.time_s: s.workers for s in result.samples}
    assert workers[0] == 0
    assert max(workers.values()) >= 2
    assert workers[1995.0] == 0  # nothing to do: nobody is paid for
    assert result.queueing_s["p99"] > 3  # the first waited for a machine


def test_a_step_that_asks_for_too_little_memory_runs_out_and_ends_where_it_fits() -> None:
    result = world(["b-tight"], 1, device="4090-48").run()
    assert result.succeeded == 1
    assert result.latency_s["p50"] > 20


class _Counting(Fifo):
    def __init__(self) -> None:
        self.seen = 0

    def decide(self, snapshot: Snapshot, model: CostModel, state: State) -> Decision:
        self.seen += bool(state.runs and snapshot.ready)
        return super().decide(snapshot, model, state)


def test_another_policy_decides_in_place_of_the_shipped_one() -> None:
    policy = _Counting()
    scenario = world(["noop-diamond"], 5).scenario
    result = Simulation(scenario, policy=policy, checker=Checker(every=1)).run()
    assert result.succeeded == 5
    assert policy.seen > 0


def test_every_command_of_the_machine_is_handled() -> None:
    control = world(["noop-flat"]).fabric.control
    assert control is not None
    assert set(get_args(Command)) == set(control.outside._table)


@pytest.mark.parametrize("kind", FAULTS)
def test_no_run_is_lost_to_a_fault(kind: str) -> None:
    faults = [
        {"kind": kind, "atS": at, "forS": 12.0, "share": 0.5, "failure": "host-crashed"}
        for at in (0.6, 1.4, 3.0)
    ]
    load = {"rows": 5, "variants": 50, "options": {"steps": 2}}
    simulation = world(["steps", "sleepers", "mixed"], 6, workers=2, faults=faults, load=load)
    result = simulation.run()
    assert simulation.faults.struck == 3
    assert result.runs == result.succeeded + result.failed + result.cancelled
    assert result.failed == 0 or kind in ("engine-errors", "amend")  # which lowers budgets


def test_a_new_control_plane_continues_where_the_last_one_crashed() -> None:
    load = {"rows": 40, "variants": 50, "options": {"steps": 2}}
    calm = world(["steps"], 4, load=load).run()
    faults = [{"kind": "control-crash", "atS": 5.0, "forS": 2.0}]
    simulation = world(["steps"], 4, load=load, faults=faults)
    result = simulation.run()
    assert (result.epochs, result.succeeded) == (2, 4)
    assert result.makespan_s < calm.makespan_s + 15
    published = simulation.fabric.store.published
    assert len(published) == len(set(published))


def test_a_dead_worker_is_detected_after_the_watchdog_and_its_work_continues_elsewhere() -> None:
    load = {"rows": 40, "variants": 50, "options": {"steps": 1}}
    faults = [{"kind": "crash", "atS": 3.0, "worker": "p-0001"}]
    simulation = world(["steps"], 4, workers=2, load=load, faults=faults)
    result = simulation.run()
    assert (result.succeeded, result.lost_workers) == (4, 1)
    late = [f for f in result.every if f.latency_s > 25]
    assert late, "20 s of work, some of it begun anew after 10 s of silence"


def test_a_seed_replays_identically() -> None:
    assert run_checked_world(QUICK[0]) == run_checked_world(QUICK[0])


def test_a_few_random_worlds_hold_every_invariant() -> None:
    assert [o for seed in QUICK if (o := run_checked_world(seed)).broken] == []
