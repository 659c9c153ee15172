"""Ready actions of one signature are spread over its instances, not packed into the first ones."""

from collections import Counter
from dataclasses import replace

import pytest
from msgspec import structs
from tests.flowmesh_core.placement.builders import (
    NOW_S,
    action,
    lane,
    signature,
    snapshot,
    worker,
)

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.snapshot import Tier
from flowmesh_core.fleet.worker_bounds import WorkerUse
from flowmesh_core.placement import decide
from flowmesh_core.placement.action_groups import groups_of
from flowmesh_core.placement.capacity import even_share
from flowmesh_core.placement.cycle import SchedulingCycle
from flowmesh_core.protocol.messages import EngineVersion

SIZE = 16_000_000_000
LLM = signature("llm", capacity=16, components={"model": SIZE}, work_unit="tokens")
LLM_ONLY = {"llm.generate": EngineVersion(1, 1)}
LONG = WorkSize(tokens_out=2_000.0, decode_steps=2_000.0, component_bytes=SIZE)
SHORT = WorkSize(tokens_out=20.0, decode_steps=20.0, component_bytes=SIZE)
"""Of these, many in an instance take hardly longer than one."""
WIDE = WorkSize(tokens_in=50_000.0, tokens_out=2_000.0, decode_steps=200.0, component_bytes=SIZE)
"""Of these, eight take 1.11 times as long as four, and four 1.06 times as long as two."""


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


def placed(workers, count, *, work=LONG, info=LLM, **fields):
    """How many of so many ready actions each worker gets."""
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


def idle(names):
    return [worker(name, near={"model": Tier.DISK}) for name in names]


def test_idle_workers_load_more_instances_only_if_actions_end_sooner():
    assert placed(idle("abcd"), 8, work=WIDE) == {"a": 4, "b": 4}
    assert placed(idle("abcd"), 8, work=LONG) == {"a": 8}


@pytest.mark.parametrize("work", [SHORT, LONG])
def test_a_loaded_instance_that_is_hardly_slower_with_all_of_them_is_preferred(work):
    assert placed([worker("hot", lane(LLM)), *idle("abcd")], 8, work=work) == {"hot": 8}


def test_workers_are_left_for_an_engine_that_needs_a_whole_one():
    large = signature("large", memory_mib=8_000, components={"big": SIZE})
    workers = idle("abcd")
    ready = [action(f"{n:03}", LLM, work=LONG) for n in range(4)]
    ready += [action(f"z{n}", large) for n in range(3)]
    decision = decide(snapshot(workers, ready, [LLM, large]), CostModel())
    assert not decision.rejections


def test_a_namespace_with_a_limit_on_workers_uses_no_more_than_it_needs():
    sql = signature("sql", engine="data.sql", capacity=4)
    team = frozenset({"team"})
    gpus = [replace(one, shape=structs.replace(one.shape, engines=LLM_ONLY)) for one in idle("abc")]
    cpu = worker("s", engines={"data.sql": EngineVersion(1, 1)}, device_class="cpu")
    ready = [action(f"{n:03}", LLM, work=WIDE, bounded_tenants=team) for n in range(8)]
    ready += [action(f"q{n}", sql, bounded_tenants=team) for n in range(2)]
    view = snapshot([*gpus, cpu], ready, [LLM, sql])
    limited = replace(view, worker_uses={"team": WorkerUse(frozenset(), 2)})
    assert not decide(limited, CostModel()).rejections


def test_free_slots_beyond_the_share_are_not_taken_for_slots_to_wait_for():
    """Worker b counts in the share, although these actions may not run there."""
    busy = worker("a", lane(LLM, held=8, remaining_s=600.0))
    workers = [busy, worker("b", lane(LLM)), *idle("c")]
    fields = {"avoid_workers": frozenset({"b"}), "deadline_s": NOW_S + 20.0}
    work = WorkSize(tokens_out=200.0, decode_steps=200.0, component_bytes=SIZE)
    assert placed(workers, 4, work=work, **fields) == {"a": 4}


def shares(workers, count):
    """The even share of an instance of each worker, open or new."""
    ready = [action(f"{n:03}", LLM, work=WIDE) for n in range(count)]
    view = snapshot(workers, ready, [LLM])
    cycle = SchedulingCycle(view, CostModel())
    (group,) = groups_of(view)
    cycle.spread(group)
    return [
        (account.instance(LLM) or account.new_instance(LLM)).even_share
        for account in cycle.accounts
    ]


def test_a_worker_with_an_open_instance_counts_once():
    assert shares([worker("hot", lane(LLM)), *idle("a")], 6) == [6, 6]


def test_an_isolated_instance_gets_none_and_does_not_count():
    alone = worker("alone", lane(LLM, held=1, isolated=True))
    assert shares([alone, worker("b", lane(LLM))], 4)[1] == 4


def test_one_more_action_than_shares_is_placed_too():
    workers = [worker(name, lane(LLM, capacity=2)) for name in "ab"]
    assert placed(workers, 9) == {"a": 4, "b": 4}, "two at once and two ahead, as ever"


def test_workers_that_cannot_hold_an_instance_do_not_count():
    large = replace(LLM, requirement=replace(LLM.requirement, memory_mib=7_000))
    other = signature("other", memory_mib=4_000)
    full = [worker(name, lane(other, held=1)) for name in "xyz"]
    assert placed([*full, *idle("ab")], 8, work=WIDE, info=large) == {"a": 4, "b": 4}


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
    assert placed(idle("abcd"), 8, work=WIDE, info=suspects) == {"a": 8}


def test_user_code_is_not_spread():
    """It may bind a worker to its tenant."""
    assert placed(idle("abcd"), 8, work=WIDE, code_tenant="team") == {"a": 8}
