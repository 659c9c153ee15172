"""Turns of tenants in the queue of store work."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowmesh_control.loop.fair_queue import FairQueue

MANY = 14_000


def even(_: str) -> float:
    return 1.0


def served(queue: FairQueue[int], count: int) -> list[str]:
    """The tenants of the next items, each done before the next is taken."""
    found = []
    for _ in range(count):
        taken = queue.pop()
        assert taken is not None
        found.append(taken[0])
        queue.done()
    return found


def test_a_tenant_that_arrives_behind_many_items_of_another_waits_for_at_most_one() -> None:
    queue: FairQueue[int] = FairQueue(weight=even)
    for number in range(MANY):
        queue.push("a", number)
    served(queue, 100)
    queue.push("b", 0)
    assert "b" in served(queue, 2)
    assert len(queue) == MANY - 101


def test_an_item_of_several_tenants_is_queued_for_the_one_served_soonest() -> None:
    queue: FairQueue[int] = FairQueue(weight={"a": 1.0, "b": 1.0, "c": 50.0}.__getitem__)
    for number in range(100):
        queue.push("a", number)
        queue.push("c", number)
    assert queue.soonest(["a", "b"]) == "b"
    assert queue.soonest(["a", "c"]) == "c"
    for number in range(3):
        queue.push("b", number)
    assert queue.soonest(["b", "c"]) == "c"


def test_items_of_one_tenant_keep_their_order() -> None:
    queue: FairQueue[int] = FairQueue(weight=even)
    for number in range(50):
        queue.push("ab"[number % 2], number)
    taken = [t for _ in range(50) if (t := queue.pop()) is not None]
    assert [n for tenant, n in taken if tenant == "a"] == list(range(0, 50, 2))
    assert [n for tenant, n in taken if tenant == "b"] == list(range(1, 50, 2))


def test_a_tenant_of_weight_three_gets_three_turns_for_each_turn_of_weight_one() -> None:
    queue: FairQueue[int] = FairQueue(weight={"a": 3.0, "b": 1.0}.__getitem__)
    for number in range(400):
        queue.push("a", number)
        queue.push("b", number)
    turns = Counter(served(queue, 400))
    assert turns["a"] == pytest.approx(300, abs=2)


def test_an_idle_tenant_does_not_accumulate_turns() -> None:
    queue: FairQueue[int] = FairQueue(weight=even)
    queue.push("b", 0)
    for number in range(1000):
        queue.push("a", number)
    served(queue, 500)
    for number in range(100):
        queue.push("b", number)
    assert Counter(served(queue, 20))["b"] == pytest.approx(10, abs=1)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf"), 1e-320])
def test_a_weight_that_is_not_a_positive_number_is_refused_when_the_item_is_added(
    weight: float,
) -> None:
    queue: FairQueue[int] = FairQueue(weight={"good": 1.0, "bad": weight}.__getitem__)
    with pytest.raises(ValueError, match="weight of tenant 'bad' is"):
        queue.push("bad", 0)
    queue.push("good", 1)
    assert queue.pop() == ("good", 1)
    assert queue.pop() is None
    assert not len(queue)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("push"), st.sampled_from("abcd")),
            st.tuples(st.sampled_from(["pop", "done", "add again"]), st.just("")),
        ),
        max_size=200,
    )
)
def test_nothing_is_lost_or_doubled(steps: list[tuple[str, str]]) -> None:
    queue: FairQueue[int] = FairQueue(weight=even)
    pushed, waiting, in_service = 0, set[int](), list[tuple[str, int]]()
    for step, tenant in steps:
        if step == "push":
            queue.push(tenant, pushed)
            waiting.add(pushed)
            pushed += 1
        elif step == "pop":
            taken = queue.pop()
            if taken is not None:
                waiting.remove(taken[1])
                in_service.append(taken)
        elif in_service and step == "done":
            in_service.pop(0)
            queue.done()
        elif in_service:
            again = in_service.pop(0)
            queue.done()
            queue.push(*again)
            waiting.add(again[1])
        assert len(queue) == len(waiting)
    for _ in in_service:
        queue.done()
    while (taken := queue.pop()) is not None:
        waiting.remove(taken[1])
        queue.done()
    assert not waiting
    assert not len(queue)
