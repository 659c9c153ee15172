"""The rules of the evaluation's baselines, without which a comparison means nothing."""

from itertools import pairwise
from typing import Any

import pytest

from flowmesh_core.errors import FlowMeshError
from flowmesh_sim.paper.observer import EvaluationObserver
from flowmesh_sim.policies import policy_named
from flowmesh_sim.policies.filling import ON_DEVICE
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import Scenario, scenario_of

MIX = ("h100-nvl", "4090-48", "4090")


def small(**changes: Any) -> Scenario:
    document: dict[str, Any] = {
        "name": "small",
        "pools": [{"name": f"{n}-{d}", "device": d} for n, d in enumerate(MIX)],
        "load": [{"shapes": ["a-chain", "a-debate", "a-vote"], "runs": 6, "rows": 2}],
        "sharing": "never",
        "control": {"replicas": False, "tickS": 1.0},
    }
    return scenario_of({**document, **changes})


class Watching(EvaluationObserver):
    """A checker that also records the attempts on each worker's device at each assignment."""

    def __init__(self) -> None:
        super().__init__()
        self.together: list[tuple[str, list[str]]] = []
        self.placed: dict[str, str] = {}

    def assigned(self, control: Any, c: Any) -> None:
        super().assigned(control, c)
        self.placed[c.assignment.attempt_id] = c.worker
        held = control.machine.state.workers[c.worker].attempts.values()
        engines = [a.action.spec.contract.name for a in held]
        self.together.append((c.worker, [e for e in engines if e.startswith(ON_DEVICE)]))


def watched(scenario: Scenario) -> tuple[Simulation, Watching, Any]:
    watching = Watching()
    simulation = Simulation(scenario, seed=3, checker=watching)
    result = simulation.run()
    assert result.succeeded == result.runs == 6
    return simulation, watching, result


@pytest.mark.parametrize("policy", ["monolithic", "static-routing", "round-robin", "fifo"])
def test_a_baseline_shares_no_result(policy: str) -> None:
    load = [{"shapes": ["a-vote"], "runs": 6, "rows": 2, "variants": 1}]
    _, watching, result = watched(small(policy=policy, load=load))
    assert sum(result.hits.values()) == 0
    assert result.executed == 6 * 3, "every workflow ran all of its steps itself"
    shared, _, _ = watched(small(policy=policy, load=load, sharing="all"))
    assert shared.fabric.book.executed == 3, "equal workflows: else the first half proves nothing"
    assert watching.lost == {}


def test_a_monolithic_workflow_keeps_one_worker_from_its_first_step_to_its_last() -> None:
    simulation, watching, _ = watched(small(policy="monolithic"))
    ends = {uid: ended_s for uid, (_, ended_s) in simulation.measures.statuses.items()}
    homes: dict[str, set[str]] = {}
    for worker, given in watching.worker_runs.items():
        for _, uid in given:
            homes.setdefault(uid, set()).add(worker)
        for (_, before), (time_s, after) in pairwise(given):
            assert before == after or time_s >= ends[before] - 1.0, "nobody comes in between"
    assert all(len(workers) == 1 for workers in homes.values())
    assert len(set.union(*homes.values())) == 3, "every worker was used"


@pytest.mark.parametrize("policy", ["static-routing", "round-robin"])
def test_a_decomposing_baselines_device_runs_one_step_at_a_time(policy: str) -> None:
    _, watching, _ = watched(small(policy=policy))
    assert max(len(engines) for _, engines in watching.together) == 1
    _, batching, _ = watched(small(policy="fifo"))
    assert max(len(engines) for _, engines in batching.together) > 1, "the load could be batched"


def test_static_routing_keeps_the_large_model_off_the_other_kinds_workers() -> None:
    shares = {"large": 0.5, "middle": 0.5}
    _, watching, _ = watched(small(policy="static-routing", policyOptions=shares))
    by_worker: dict[str, set[int]] = {}
    for a in watching.first.values():
        if a.engine.startswith(ON_DEVICE):
            size = sum(a.inputs[p].artifact.size_bytes for p in a.components)
            by_worker.setdefault(watching.placed[a.attempt_id], set()).add(size // 10**9)
    assert all(len(sizes) == 1 for sizes in by_worker.values()), by_worker


def test_round_robin_assigns_to_every_worker_in_turn() -> None:
    _, watching, _ = watched(small(policy="round-robin"))
    used = [worker for worker, engines in watching.together if engines]
    assert set(used[:3]) == {f"{n}-{d}-0001" for n, d in enumerate(MIX)}


def test_an_unbatched_instance_runs_one_action_and_random_placement_is_reproducible() -> None:
    _, watching, _ = watched(small(policy="unbatched"))
    same = [engines for _, engines in watching.together if len(engines) > len(set(engines))]
    assert not [e for e in same if "llm.agent" in e]
    first, again = (watched(small(policy="random-placement", sharing="all"))[2] for _ in range(2))
    assert first.trace == again.trace


def test_a_resumed_worker_keeps_its_disk_and_a_fresh_one_starts_with_an_empty_disk() -> None:
    held = {}
    for disk in ("reused", "fresh"):
        pool = {"name": "p", "device": "4090", "workers": 0, "maximum": 1, "autoscale": True}
        arrivals = {"kind": "every", "perMinute": 0.01}
        load = {"shapes": ["a-vote"], "runs": 2, "rows": 2, "arrivals": arrivals}
        scenario = small(pools=[{**pool, "disk": disk, "stabilizationS": 30.0}], load=[load])
        simulation = Simulation(scenario, seed=3)
        simulation.run()
        workers = simulation.measures.workers
        assert len(workers) == 2, "it went between the two workflows"
        held[disk] = simulation.provisioner.pools[0].waited_s, simulation.measures.waits_s
    assert max(held["reused"][1][2:]) < max(held["fresh"][1][2:]), "weights came once, or twice"


def test_an_unknown_policy_or_option_is_named() -> None:
    with pytest.raises(FlowMeshError, match="did you mean 'fifo'"):
        policy_named("fifa")
    with pytest.raises(FlowMeshError, match="no kind 'larg'"):
        policy_named("static-routing", {"larg": 1.0})
