"""An engine that is asleep on a worker is woken there in place of being started."""

from dataclasses import replace

import pytest
from tests.flowmesh_core.placement.builders import (
    action,
    lane,
    signature,
    snapshot,
    where,
    worker,
)

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.snapshot import Tier, WorkerView
from flowmesh_core.placement import candidates_of, decide

GB = 10**9
LLM = signature("llm", memory_mib=20_000, components={"m": 16 * GB}, work_unit="tokens")
OTHER = signature("other", memory_mib=20_000, work_unit="tokens")
ACTION = action("a", LLM, work=WorkSize(tokens_out=2000.0, component_bytes=16 * GB))


def device(name: str, *, asleep: bool = False, **fields: object) -> WorkerView:
    view = worker(name, memory_mib=24_000, near={"m": Tier.DISK})
    return replace(view, asleep=frozenset({LLM.signature} if asleep else ()), **fields)  # type: ignore[arg-type]


def load_s(view: WorkerView, **changes: object) -> float:
    one = replace_action(**changes)
    (found,) = candidates_of(one, snapshot([view], [one], [LLM]), CostModel())
    return found.terms.start_s


def replace_action(**changes: object):
    return action("a", LLM, work=ACTION.work, **changes)


def test_a_worker_where_the_engine_sleeps_has_it_after_a_wake() -> None:
    assert load_s(device("w", asleep=True)) == pytest.approx(1.7)
    assert load_s(device("w")) > 30.0


def test_an_isolated_action_gets_a_host_of_its_own_that_has_to_load() -> None:
    assert load_s(device("w", asleep=True), isolate=True) > 30.0


def test_of_equal_workers_the_one_where_the_engine_sleeps_is_chosen() -> None:
    for names in (("a", "b"), ("b", "a")):
        workers = [device(names[0]), device(names[1], asleep=True)]
        assert where(decide(snapshot(workers, [ACTION], [LLM]), CostModel()))["a"] == names[1]


def test_an_open_engine_is_chosen_before_one_that_sleeps() -> None:
    opened = device("z", instances={LLM.signature: lane(LLM)})
    view = snapshot([device("a", asleep=True), opened], [ACTION], [LLM])
    assert where(decide(view, CostModel()))["a"] == "z"


def test_an_engine_that_sleeps_counts_as_not_loaded_where_others_hold_its_memory() -> None:
    full = device("a", asleep=True, free_memory_mib=4000)
    decision = decide(snapshot([full], [ACTION], [LLM]), CostModel())
    assert not decision.placements
