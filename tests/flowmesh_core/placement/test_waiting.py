"""How long an action waits for an open engine instance before another one is opened."""

import pytest
from tests.flowmesh_core.placement.builders import action, lane, signature, snapshot, where, worker

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.placement import candidates_of, decide

GB = 10**9
LLM = signature("llm", memory_mib=20_000, capacity=8, components={"m": 16 * GB}, work_unit="tokens")
WORK = WorkSize(tokens_out=1_000.0, component_bytes=16 * GB)
FULL = worker("hot", lane(LLM, assigned=16, capacity=8, remaining_s=10.0), memory_mib=24_000)
IDLE = worker("idle", memory_mib=24_000)


def view(count: int, weights: UtilityWeights):
    ready = [action(f"a{n}", LLM, work=WORK, weights=weights) for n in range(count)]
    return snapshot([FULL, IDLE], ready, [LLM])


def placed(count: int, weights: UtilityWeights) -> int:
    """How many of so many actions are given to the idle worker; the others wait for the hot one."""
    found = where(decide(view(count, weights), CostModel()))
    assert set(found.values()) <= {"idle"}
    return len(found)


@pytest.mark.parametrize("weights", [UtilityWeights(), UtilityWeights(1.0, 0.1, 0.25)])
def test_a_few_actions_wait_and_of_many_a_full_batch_goes_to_an_idle_worker(weights):
    assert placed(8, weights) == 0
    assert placed(400, weights) > 4


def test_inputs_on_a_worker_that_an_action_waits_for_do_not_count_as_local():
    seen = view(1, UtilityWeights())
    (one,) = seen.ready
    found = {c.worker: c.terms.locality for c in candidates_of(one, seen, CostModel())}
    assert found == {"hot": 0.0, "idle": 0.0}
    free = snapshot(
        [worker("hot", lane(LLM, assigned=7, capacity=8), memory_mib=24_000)], [one], [LLM]
    )
    (there,) = candidates_of(one, free, CostModel())
    assert there.terms.locality == 1.0
