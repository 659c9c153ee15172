"""The index that lives across cycles, compared with one that is built anew."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.flowmesh_core.fleet.contents import contents
from tests.flowmesh_core.placement.builders import NOW_S, action, digest, signature
from tests.flowmesh_core.placement.instances import random_snapshot

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.ready_index import ReadyIndex
from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.placement import decide

INFOS = (signature("s1"), signature("s2"))
STEPS = st.lists(st.tuples(st.sampled_from("aaarrt"), st.integers(0, 10**9)), max_size=60)


def any_action(seed: int):
    """One of few tenants, sizes, cautions and backoffs; ranks often begin alike."""
    rng = random.Random(seed)
    return action(
        f"a{seed}x",
        rng.choice(INFOS),
        tenant=rng.choice("xy"),
        priority=rng.randrange(2),
        weights=rng.choice((UtilityWeights(), UtilityWeights(2.0, 1.0, 1.0))),
        work=WorkSize(
            units=rng.choice((0.1, 1 / 3, 1e9)),
            tokens_in=rng.random(),
            input_bytes=rng.choice((0, 10**6)),
            component_bytes=rng.randrange(3),
        ),
        inputs=tuple((digest(f"i{rng.randrange(3)}x"), 10 ** rng.randrange(3, 8)) for _ in "ab"),
        avoid_workers=frozenset(rng.sample(["w1"], rng.randrange(2))),
        not_before_s=NOW_S + rng.choice((-1, 0, 1, 5, 20)),
    )


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_after_any_additions_and_removals_the_index_equals_a_newly_built_one(steps):
    index, now_s = ReadyIndex((), NOW_S), NOW_S
    there = {}
    for step, number in steps:
        if step == "a":
            one = any_action(number)
            if one.action_id not in there:
                there[one.action_id] = one
                index.add(one)
        elif step == "r" and there:
            index.remove(there.pop(sorted(there)[number % len(there)]))
        else:
            index.release(now_s + number % 10 - 3)
            now_s = max(now_s, now_s + number % 10 - 3)
        assert contents(index) == contents(ReadyIndex(there.values(), now_s))
        assert {a.action_id for a in index} == set(there)
    for one in there.values():
        index.remove(one)
    assert contents(index) == contents(ReadyIndex())


@pytest.mark.parametrize("seed", range(20))
def test_a_decision_does_not_depend_on_actions_added_and_removed_before(seed):
    view = random_snapshot(seed, actions=60, workers=8, signatures=5)
    kept, rng = ReadyIndex((), view.now_s), random.Random(seed)
    others = [structs.replace(a, action_id=digest(f"b{a.action_id[:9]}")) for a in view.ready]
    for one in rng.sample([*view.ready, *others], 120):
        kept.add(one)
    for one in rng.sample(others, 60):
        kept.remove(one)
    assert decide(replace(view, ready=kept), CostModel()) == decide(view, CostModel())


def test_a_clock_that_is_set_back_starts_no_backoff_again():
    index = ReadyIndex((), NOW_S)
    one = action("a", INFOS[0], not_before_s=NOW_S + 1)
    index.add(one)
    index.release(NOW_S + 2)
    index.release(NOW_S)
    assert not index.backoff
    index.remove(one)
    assert not len(index)


def test_an_absent_action_cannot_be_removed():
    index = ReadyIndex([action("a", INFOS[0])])
    for stranger in (action("b", INFOS[0]), action("a", INFOS[1])):
        with pytest.raises(ValueError, match="not in"):
            index.remove(stranger)
