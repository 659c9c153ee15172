"""Trust of pools: where attempts are made, which results count, and whose failures are final."""

import pytest
from tests.flowmesh_core.machine.world import World, only, plan, step

from flowmesh_api.v1.enums import RejectionCause, StepState
from flowmesh_core.machine.events import WorkerTrustChanged
from flowmesh_core.machine.settings import Settings


def wanted(namespace: str, min_trust: int = 0):
    return plan(step("a", value=1), namespace=namespace, min_trust=min_trust)


def trust_of(world: World, worker: str, trust: int) -> None:
    world.apply(WorkerTrustChanged(worker, world.incarnations[worker], trust))


def test_an_action_runs_only_on_a_worker_of_the_trust_that_its_scope_requires() -> None:
    world = World()
    world.join("low", trust=0)
    world.submit(wanted("a"), "a", share="group-x", min_trust=1)
    world.tick()
    waiting = world.machine.state.runs["a"].steps["a"]
    assert waiting.wait_reason == RejectionCause.TRUST
    assert "trust 1" in waiting.wait_detail
    assert not world.attempts()
    world.join("high", trust=1)
    world.run()
    assert world.finals["a"].phase == "Succeeded"
    (result,) = world.cache.values()
    assert (result.provenance.worker, result.provenance.trust) == ("high", 1)


def test_a_namespace_alone_uses_any_worker() -> None:
    world = World()
    world.join("low", trust=0)
    world.submit(wanted("a"), "a")
    assert world.run().finals["a"].phase == "Succeeded"


def test_on_a_fleet_that_does_not_grow_a_run_without_a_trusted_worker_fails() -> None:
    world = World(settings=Settings(watchdog_s=1e9, unplaceable_after_s=5.0))
    world.join("low", trust=1)
    world.submit(wanted("a", min_trust=3), "a")
    world.run(lambda w: "a" in w.finals)
    assert world.finals["a"].reason == "unplaceable"
    assert "trust 3" in world.finals["a"].message


def test_a_stored_result_of_less_trust_is_a_miss_and_is_replaced() -> None:
    world = World()
    world.join("low", trust=1)
    world.submit(wanted("a"), "a", share="group-x", min_trust=1)
    world.run()
    world.join("high")
    world.submit(wanted("b", min_trust=2), "b", share="group-x", min_trust=1)
    world.run()
    assert world.finals["b"].phase == "Succeeded"
    (result,) = world.cache.values()
    assert (result.generation, result.provenance.worker) == (2, "high")
    made = len(world.executed)
    world.submit(wanted("c"), "c", share="group-x", min_trust=1)
    world.submit(wanted("d", min_trust=2), "d", share="group-x", min_trust=1)
    world.run()
    assert len(world.executed) == made, "the better result serves both"


@pytest.mark.parametrize("first", [0, 2])
def test_each_of_two_tenants_is_completed_by_a_result_that_it_trusts(first: int) -> None:
    world = World()
    world.join("low", trust=1)
    for uid, min_trust in (("a", first), ("b", 2 - first)):
        world.submit(wanted(uid, min_trust), uid, share="group-x", min_trust=1)
    easy, strict = ("a", "b") if first == 0 else ("b", "a")
    world.run(lambda w: easy in w.finals)
    assert world.finals[easy].phase == "Succeeded"
    assert world.machine.state.runs[strict].steps["a"].state is not StepState.COMPLETED
    paid = world.finals[easy].paid_nanousd
    assert paid == world.machine.state.book.receipts_nanousd, "it pays for its attempt alone"
    world.join("high")
    world.run()
    assert world.finals[strict].phase == "Succeeded"
    assert world.publications[-1][2] == 2, "the next generation"


def test_a_run_that_accepts_less_trust_uses_the_stored_result_that_another_run_refused() -> None:
    world = World()
    world.join("low", trust=1)
    world.submit(wanted("a"), "a", share="group-x", min_trust=1)
    world.run()
    world.submit(wanted("b", min_trust=3), "b", share="group-x", min_trust=1)
    world.submit(wanted("c"), "c", share="group-x", min_trust=1)
    world.tick()
    assert world.finals["c"].phase == "Succeeded"
    assert "b" not in world.finals


def test_actions_of_different_min_trust_share_one_engine_instance() -> None:
    world = World()
    world.join("w")
    world.submit(wanted("a"), "a")
    other = plan(step("a", value=2), namespace="b", min_trust=2)
    world.submit(other, "b")
    world.tick()
    assert len({a.signature for a in world.attempts()}) == 1
    assert len(world.attempts()) == 2


def test_a_result_that_no_remaining_run_accepts_is_not_stored_and_no_run_pays() -> None:
    world = World()
    world.join("w")
    world.submit(wanted("a", min_trust=2), "a")
    world.tick()
    attempt = only(world)
    world.begin(attempt.attempt_id)
    world.tick(2.0)
    trust_of(world, "w", 1)
    world.finish(attempt.attempt_id)
    assert not world.cache
    assert world.machine.state.figures.untrusted_results == {"default": 1}
    assert world.machine.state.book.receipts_nanousd == 0
    trust_of(world, "w", 2)
    assert world.run().finals["a"].phase == "Succeeded"


def test_an_attempt_of_an_untrusted_worker_is_not_adopted_after_a_restart() -> None:
    before = World()
    before.join("w")
    before.submit(wanted("a", min_trust=2), "a")
    before.tick()
    attempt = only(before)
    after = World(epoch=2, recovering_until_s=1003.0, now=1000.0)
    after.held["w"] = dict(before.held["w"])
    after.join("w", trust=1)
    after.submit(wanted("a", min_trust=2), "a")
    after.run(lambda w: w.now > 1005.0)
    assert attempt.attempt_id not in after.held["w"]
    assert not after.cache


def test_a_failure_that_an_untrusted_worker_reports_needs_a_second_one() -> None:
    world = World()
    world.join("low", trust=1)
    world.submit(wanted("a"), "a", share="group-x", min_trust=1)
    world.tick()
    world.join("other", trust=1)
    world.begin(only(world).attempt_id)
    world.tick(2.0)
    world.fail(only(world).attempt_id, "bad-input")
    world.tick()
    assert "a" not in world.finals
    assert world.worker_of(only(world).attempt_id) == "other"
    assert world.machine.state.figures.second_opinions == {"default": 1}
    assert world.machine.state.book.receipts_nanousd == 0, "the fabric pays for the first"
    world.fail(only(world).attempt_id, "bad-input")
    assert world.finals["a"].reason == "bad-input"


@pytest.mark.parametrize(
    ("trust", "share", "others"),
    [(2, "group-x", True), (1, "", True), (1, "group-x", False)],
    ids=["a trusted pool", "a scope of one namespace", "the only worker"],
)
def test_a_failure_is_final_at_once(trust: int, share: str, others: bool) -> None:
    world = World()
    world.join("w", trust=trust)
    world.submit(wanted("a"), "a", share=share)
    world.tick()
    if others:
        world.join("other", trust=trust)
    world.fail(only(world).attempt_id, "user-code")
    assert world.finals["a"].reason == "user-code"
