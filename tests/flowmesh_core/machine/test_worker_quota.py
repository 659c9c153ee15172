"""A namespace's attempts run on as many workers at once as its quota allows, and what more waits.

The workers are counted here from the assignments that workers hold, without the machine's counts.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.flowmesh_core.machine.test_law_of_company import EXAMPLES
from tests.flowmesh_core.machine.world import NOOP, SOLO, World, after, plan, step

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.machine.events import (
    NamespaceLimits,
    NamespaceLimitsChanged,
    PlacementDecided,
)
from flowmesh_core.machine.settings import Settings
from flowmesh_core.placement import candidates_of, decide

A, B, C = "team-a", "team-b", "team-c"


def limited(workers: dict[str, int]) -> NamespaceLimitsChanged:
    return NamespaceLimitsChanged({n: NamespaceLimits(workers=most) for n, most in workers.items()})


def used(world: World, namespace: str) -> set[str]:
    """The workers that hold an attempt which only runs of this namespace had when it was sent."""
    uids = {uid for uid, run in world.machine.state.runs.items() if run.plan.namespace == namespace}
    return {w for w, held in world.held.items() for a in held.values() if uids >= set(a.run_uids)}


def work(
    world: World,
    namespace: str,
    count: int,
    first: int = 0,
    uses: EngineContract = SOLO,
    **changes: str,
) -> str:
    """Actions that fill half a worker each."""
    numbers = range(first, first + count)
    steps = (step(f"s{n}", uses=uses, n=n, of=changes.get("of", namespace)) for n in numbers)
    share = changes.get("share", "")
    return world.submit(plan(*steps, namespace=namespace), share=share)


def reasons(world: World, uid: str) -> set[tuple[str, str]]:
    steps = world.machine.state.runs[uid].steps.values()
    return {(s.wait_reason, s.wait_detail) for s in steps if s.wait_reason}


def fabric(*workers: str, **limits: int) -> World:
    world = World(settings=Settings(watchdog_s=1e9))
    world.join(*(workers or ("w1", "w2", "w3")))
    world.apply(limited({f"team-{letter}": most for letter, most in limits.items()}))
    return world


def ticks(world: World, count: int = 3) -> None:
    for _ in range(count):
        world.tick(1.0)


def test_a_namespace_uses_its_worker_and_another_namespace_uses_the_rest() -> None:
    world = fabric(a=1)
    uid = work(world, A, 12)
    ticks(world)
    (its,) = used(world, A)
    assert len(world.held[its]) == 2, "the worker's slots are the namespace's"
    ((cause, text),) = reasons(world, uid)
    assert cause == RejectionCause.WORKER_QUOTA
    assert "namespace team-a uses 1 of at most 1 workers" in text
    work(world, B, 12)
    ticks(world)
    assert used(world, A) == {its}
    assert used(world, B) == {"w1", "w2", "w3"} - {its}
    world.run()
    assert {status.phase for status in world.finals.values()} == {"Succeeded"}


def test_a_free_slot_of_a_worker_that_it_uses_is_taken_at_the_bound() -> None:
    world = fabric(a=1)
    work(world, A, 1)
    ticks(world)
    (its,) = used(world, A)
    work(world, A, 1, first=1)
    ticks(world)
    assert [len(held) for held in world.held.values()] == [2]
    assert used(world, A) == {its}


def test_the_reason_is_that_the_workers_are_full_where_they_are_all_its_own() -> None:
    world = fabric("w1", a=1)
    uid = work(world, A, 5)
    ticks(world)
    assert {cause for cause, _ in reasons(world, uid)} == {RejectionCause.BUSY}


def test_a_bound_of_no_workers_is_none_and_not_no_bound() -> None:
    world = fabric(a=0, b=0)
    uids = [work(world, A, 2), work(world, B, 1)]
    both = [work(world, team, 1, first=100, of="both", share="group-x") for team in (A, C)]
    ticks(world, 10)
    assert [set(a.run_uids) for a in world.attempts()] == [set(both)], "team C has no bound"
    for uid, team in zip(uids, (A, B), strict=True):
        ((cause, text),) = reasons(world, uid)
        assert cause == RejectionCause.WORKER_QUOTA
        assert text.startswith(f"namespace team-{team[-1]} may use no workers; ask an administr")
    world.apply(limited({A: 1}))
    world.run()


def test_explain_names_the_workers_only_that_it_may_use() -> None:
    world = fabric(a=1)
    uid = work(world, A, 5)
    ticks(world)
    snapshot = world.machine.snapshot(world.now)
    waiting = next(iter(snapshot.ready))
    found = candidates_of(waiting, snapshot, world.machine.state.model)
    assert {candidate.worker for candidate in found} == used(world, A)
    assert uid


def test_an_action_that_an_unbounded_namespace_wants_too_counts_for_none() -> None:
    world = fabric(a=1)
    work(world, A, 12)
    ticks(world)
    its = used(world, A)
    work(world, A, 4, first=100, of="both", share="group-x")
    ticks(world)
    assert used(world, A) == its, "alone it waits"
    work(world, B, 4, first=100, of="both", share="group-x")
    ticks(world)
    assert used(world, A) == its
    shared = {w for w, held in world.held.items() for a in held.values() if len(a.run_uids) == 2}
    assert shared == {"w1", "w2", "w3"} - its


def test_a_worker_that_runs_what_others_want_too_leaves_room_below_the_bound() -> None:
    world = fabric("w1", a=1)
    for team in (A, B):
        work(world, team, 2, first=100, of="both", share="group-x")
    ticks(world)
    assert len(world.held["w1"]) == 2
    world.join("w2")
    work(world, A, 2)
    ticks(world)
    assert used(world, A) == {"w2"}


def test_an_action_of_two_bounded_namespaces_is_placed_while_one_of_them_is_below() -> None:
    world = fabric(a=1, b=1)
    work(world, A, 1)
    ticks(world)
    for team in (A, B):
        work(world, team, 4, first=100, of="both", share="group-x")
    ticks(world)
    assert used(world, A) | used(world, B) == used(world, A), "it counts for none"
    assert len(world.attempts()) > 2


def test_workers_that_all_its_namespaces_may_not_use_are_not_used_for_an_action() -> None:
    world = fabric("w1", "w2", "w3", "w4", a=1, b=1)
    runs = [work(world, team, 1) for team in (A, B)]
    ticks(world)
    theirs = used(world, A) | used(world, B)
    assert len(theirs) == 2
    runs += [work(world, team, 8, first=100, of="both", share="group-x") for team in (A, B)]
    ticks(world)
    assert {w for w, held in world.held.items() if held} == theirs
    texts = {text for uid in runs for _, text in reasons(world, uid)}
    assert any("namespace team-a uses 1 of at most 1" in t and "team-b uses 1" in t for t in texts)


def test_a_lost_worker_counts_no_more_and_its_work_goes_on_elsewhere() -> None:
    world = fabric(a=1)
    uid = work(world, A, 4)
    ticks(world)
    (its,) = used(world, A)
    world.lose(its)
    ticks(world)
    (other,) = used(world, A)
    assert other != its
    world.run()
    assert world.finals[uid].phase == "Succeeded"


def test_a_lower_bound_ends_nothing_and_is_reached_as_attempts_end() -> None:
    world = fabric(a=3)
    work(world, A, 30)
    ticks(world)
    assert len(used(world, A)) == 3
    before = {a.attempt_id for a in world.attempts()}
    world.apply(limited({A: 1}))
    ticks(world)
    assert {a.attempt_id for a in world.attempts()} == before, "what runs goes on"
    for attempt in world.attempts():
        world.finish(attempt.attempt_id)
        ticks(world, 1)
    assert len(used(world, A)) == 1
    world.apply(limited({}))
    ticks(world)
    assert len(used(world, A)) == 3


def test_a_bound_that_begins_while_attempts_run_counts_them() -> None:
    world = fabric()
    work(world, A, 1)
    ticks(world)
    world.apply(limited({A: 1}))
    work(world, A, 8, first=1)
    ticks(world)
    assert len(used(world, A)) == 1


def test_a_decision_on_an_older_snapshot_gives_no_worker_too_many() -> None:
    world = fabric()
    work(world, A, 6)
    decision = decide(world.machine.snapshot(world.now), world.machine.state.model)
    assert len({placement.worker for placement in decision.placements}) == 3
    world.apply(limited({A: 2}))
    world.apply(PlacementDecided(decision))
    assert len(used(world, A)) == 2
    ticks(world)
    assert len(used(world, A)) == 2


def test_attempts_that_go_on_under_a_new_leader_count() -> None:
    world = fabric(a=1)
    work(world, A, 2)
    ticks(world)
    (its,) = used(world, A)
    again = World(settings=Settings(watchdog_s=1e9), epoch=2, now=world.now, held=world.held)
    again.apply(limited({A: 1}))
    work(again, A, 8)
    again.join(its, *sorted({"w1", "w2", "w3"} - {its}))
    ticks(again)
    assert {w for w, held in again.held.items() if held} == {its}


def test_a_namespace_without_a_bound_is_grouped_with_the_others() -> None:
    world = fabric(a=1)
    for team in (B, C):
        work(world, team, 5)
    ready = world.machine.snapshot(world.now).ready
    assert len(ready.groups) == 1


def two_kinds(**limits: int) -> World:
    """A fabric whose workers x1 to x3 run one engine, and y1 to y3 another."""
    world = World(settings=Settings(watchdog_s=1e9))
    for letter, engine in (("x", SOLO), ("y", NOOP)):
        names = (f"{letter}{number}" for number in (1, 2, 3))
        world.join(*names, engines={engine.name: engine.versions})
    world.apply(limited({f"team-{letter}": most for letter, most in limits.items()}))
    return world


def feed(world: World, until: Callable[[World], bool], *, chain: int = 1, **changes: Any) -> float:
    """Team A always has more ready work for workers x than fits; returns how long it took.

    Each step is the first of a chain, so that a long chain makes it more urgent.
    """
    began = world.now
    while world.now - began < 300.0:
        while len(world.machine.state.ready) < 12:
            n = len(world.finals) + len(world.machine.state.runs)
            steps = [step("s0", uses=SOLO, n=n)]
            for link in range(1, chain):
                steps.append(step(f"s{link}", *after(f"s{link - 1}"), uses=SOLO, n=n))
            world.submit(plan(*steps, namespace=A, **changes))
        world.tick(1.0)
        if until(world):
            break
        world.finish(min(a.attempt_id for a in world.attempts()))
    return world.now - began


def runs_on(letter: str, most: int = 1) -> Callable[[World], bool]:
    """Whether team A uses a worker of a kind, and never more than it may."""

    def found(world: World) -> bool:
        its = used(world, A)
        assert len(its) <= most
        return any(worker.startswith(letter) for worker in its)

    return found


@pytest.mark.parametrize("chain", [1, 5], ids=["of the same urgency", "of more urgency"])
@pytest.mark.parametrize("most", [1, 2])
def test_an_endless_stream_for_one_kind_of_worker_leaves_one_to_the_other_kind(
    most: int, chain: int
) -> None:
    world = two_kinds(a=most)
    feed(world, runs_on("x", most), chain=chain)
    uid = world.submit(plan(step("y", n=1), namespace=A))
    assert feed(world, runs_on("y", most), chain=chain) < 30.0
    world.finish(next(a.attempt_id for a in world.attempts() if a.run_uids == (uid,)))
    assert world.finals[uid].phase == "Succeeded"
    assert feed(world, runs_on("x", most), chain=chain) < 30.0, "the stream goes on"


def test_work_of_more_priority_is_not_stopped_for_another_kind_of_worker() -> None:
    world = two_kinds(a=1)
    feed(world, runs_on("x"), priority=1)
    uid = world.submit(plan(step("y", n=1), namespace=A))
    assert feed(world, runs_on("y"), priority=1) > 200.0
    assert world.machine.state.runs[uid].steps["y"].wait_reason == RejectionCause.WORKER_QUOTA
    urgent = world.submit(plan(step("y", n=2), namespace=A, priority=2))
    assert feed(world, runs_on("y"), priority=1) < 30.0
    assert {a.run_uids for a in world.attempts()} >= {(urgent,)}


def test_an_action_of_two_namespaces_at_their_bounds_gets_another_kind_of_worker() -> None:
    world = two_kinds(a=1, b=1)
    work(world, B, 1, first=10**6)
    feed(world, runs_on("x"))
    for team in (A, B):
        world.submit(plan(step("y", n=1), namespace=team), share="group-x")
    uids = {uid for uid, run in world.machine.state.runs.items() if "y" in run.steps}
    assert feed(world, lambda w: any(uids <= set(a.run_uids) for a in w.attempts())) < 30.0


def test_what_waits_for_a_reserved_worker_of_its_namespace_has_that_reason() -> None:
    world = two_kinds(a=1)
    uid = work(world, A, 8)
    ticks(world)
    world.submit(plan(step("y", n=1), namespace=A, priority=1))
    ticks(world, 10)
    ((cause, text),) = reasons(world, uid)
    assert cause == RejectionCause.WORKER_QUOTA
    assert "uses 1 of at most 1 workers, one of which is for work that" in text
    snapshot = world.machine.snapshot(world.now)
    waiting = next(action for action in snapshot.ready if action.priority == 0)
    assert not candidates_of(waiting, snapshot, world.machine.state.model)


class Bounded(RuleBasedStateMachine):
    """Three namespaces, of which some have bounds, on workers that come, fail and go."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(settings=Settings(watchdog_s=1e9, poison_losses=10**6))
        self.bounds: dict[str, int] = {}
        self.allowed: dict[str, float] = {}
        self.made = 0
        for engines in ((SOLO,), (NOOP,), (SOLO, NOOP)):
            self.join(engines)

    @rule(
        team=st.sampled_from((A, B, C)),
        count=st.integers(1, 8),
        shared=st.booleans(),
        uses=st.sampled_from((SOLO, NOOP)),
    )
    def submit(self, team: str, count: int, shared: bool, uses: EngineContract) -> None:
        if shared:
            work(self.world, team, count, of="all", share="group-x", uses=uses)
        else:
            work(self.world, team, count, first=self.made, uses=uses)
            self.made += count

    @rule(team=st.sampled_from((A, B, C)), most=st.sampled_from((None, 1, 1, 2, 3)))
    def bound(self, team: str, most: int | None) -> None:
        self.bounds.pop(team, None)
        if most is not None:
            self.bounds[team] = most
        self.allowed = {n: max(m, len(used(self.world, n))) for n, m in self.bounds.items()}
        self.world.apply(limited(self.bounds))

    @rule(engines=st.sampled_from(((SOLO,), (NOOP,), (SOLO, NOOP))))
    @precondition(lambda self: len(self.world.machine.state.workers) < 6)
    def join(self, engines: tuple[EngineContract, ...]) -> None:
        self.made += 1
        self.world.join(f"w{self.made}", engines={e.name: e.versions for e in engines})

    @rule(data=st.data())
    @precondition(lambda self: self.world.machine.state.workers)
    def lose(self, data: st.DataObject) -> None:
        self.world.lose(data.draw(st.sampled_from(sorted(self.world.machine.state.workers))))

    @rule(data=st.data(), fails=st.booleans())
    @precondition(lambda self: self.world.attempts())
    def end(self, data: st.DataObject, fails: bool) -> None:
        one = data.draw(st.sampled_from(sorted(a.attempt_id for a in self.world.attempts())))
        if fails:
            self.world.fail(one, "host-crashed")
        else:
            self.world.finish(one)

    @rule(seconds=st.sampled_from((0.25, 1.0, 30.0)))
    def wait(self, seconds: float) -> None:
        self.world.tick(seconds)

    @invariant()
    def no_namespace_uses_more_workers_than_it_may(self) -> None:
        for namespace, most in self.bounds.items():
            count = len(used(self.world, namespace))
            assert count <= self.allowed[namespace], f"{namespace} uses {count} workers"
            self.allowed[namespace] = max(most, count)  # a lowered bound is only approached

    @invariant()
    def workers_count_their_attempts_by_namespace(self) -> None:
        for worker in self.world.machine.state.workers.values():
            running = Counter(a.tenant for a in worker.attempts.values() if a.tenant)
            assert worker.tenants == running

    def teardown(self) -> None:
        """All work ends: what waits for a worker of its namespace gets one."""
        self.world.join("last")
        self.world.run(rounds=2_000)


TestBounded = Bounded.TestCase
TestBounded.settings = settings(
    max_examples=min(100, EXAMPLES), stateful_step_count=30, deadline=None
)
