"""Ready actions of one signature are spread over its instances, not packed into the first ones."""

from collections import Counter
from dataclasses import replace

import pytest
from tests.flowmesh_core.placement.builders import action, lane, signature, snapshot, worker

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.snapshot import Tier
from flowmesh_core.placement import decide
from flowmesh_core.placement.capacity import even_share

SIZE = 16_000_000_000
LLM = signature("llm", capacity=16, components={"model": SIZE}, work_unit="tokens")
LONG, SHORT = 2_000.0, 20.0


@pytest.mark.parametrize(
    ("ready", "assigned", "empty", "share"),
    [
        (1, [], 0, 1),
        (5, [], 0, 5),  # no instance yet
        (8, [0, 0], 0, 4),
        (9, [0, 0], 0, 5),  # rounded up
        (4, [0, 4], 0, 4),
        (5, [0, 4], 0, 5),
        (2, [9, 0, 9], 0, 2),  # the full ones get none
        (8, [9, 0, 2], 0, 5),
        (8, [6], 3, 3),
        (8, [], 4, 2),
        (1, [7, 7], 0, 8),
    ],
)
def test_instances_that_get_ready_actions_have_equally_many(ready, assigned, empty, share):
    assert even_share(ready, assigned, empty) == share


def placed(workers, count, *, tokens=LONG, info=LLM, **fields):
    """How many of so many ready actions each worker gets."""
    work = WorkSize(tokens_out=tokens, decode_steps=tokens, component_bytes=SIZE)
    ready = [action(f"{n:03}", info, work=work, **fields) for n in range(count)]
    found = Counter[str]()
    for placement in decide(snapshot(workers, ready, [info]), CostModel()).placements:
        found[placement.worker] += len(placement.actions)
    return dict(found)


def test_loaded_instances_share_what_is_ready():
    workers = [worker(name, lane(LLM)) for name in "abc"]
    assert placed(workers, 9) == {"a": 3, "b": 3, "c": 3}


def test_an_instance_with_more_than_its_share_gets_one_action_at_most():
    workers = [worker("busy", lane(LLM, held=8)), worker("a", lane(LLM)), worker("b", lane(LLM))]
    found = placed(workers, 6)
    assert found.pop("busy", 0) <= 1
    assert sorted(found.values()) in ([2, 3], [3, 3])


def test_idle_workers_load_an_instance_each_if_none_is_loaded():
    workers = [worker(name, near={"model": Tier.DISK}) for name in "abcd"]
    assert placed(workers, 8) == {"a": 2, "b": 2, "c": 2, "d": 2}


@pytest.mark.parametrize("tokens", [SHORT, LONG])
def test_a_loaded_instance_that_is_hardly_slower_with_all_of_them_is_preferred(tokens):
    idle = [worker(name, near={"model": Tier.DISK}) for name in "abcd"]
    assert placed([worker("hot", lane(LLM)), *idle], 8, tokens=tokens) == {"hot": 8}


def test_one_more_action_than_shares_is_placed_too():
    workers = [worker(name, lane(LLM, capacity=2)) for name in "ab"]
    assert placed(workers, 9) == {"a": 4, "b": 4}, "two at once and two ahead, as ever"


def test_workers_that_cannot_hold_an_instance_do_not_count():
    large = signature("llm", memory_mib=7_000, capacity=16, components={"model": SIZE})
    other = signature("other", memory_mib=4_000)
    full = [worker(name, lane(other, held=1)) for name in "xyz"]
    idle = [worker(name, near={"model": Tier.DISK}) for name in "ab"]
    assert placed([*full, *idle], 8, info=large) == {"a": 4, "b": 4}


def test_a_draining_worker_does_not_count():
    workers = [
        worker("a", lane(LLM)),
        worker("b", lane(LLM)),
        worker("c", lane(LLM), draining=True),
    ]
    assert placed(workers, 8) == {"a": 4, "b": 4}


def test_suspects_are_not_spread():
    """They are halved host by host, so one host has all of a half (ADR 18)."""
    suspects = replace(LLM, suspects_of=LLM.signature)
    workers = [worker(name, near={"model": Tier.DISK}) for name in "abcd"]
    assert placed(workers, 8, info=suspects) == {"a": 8}


def test_user_code_is_not_spread():
    """It may bind a worker to its tenant."""
    workers = [worker(name, near={"model": Tier.DISK}) for name in "abcd"]
    assert placed(workers, 8, code_tenant="team") == {"a": 8}
