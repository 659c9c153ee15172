"""Limits of a namespace's quota on its attempts, with the reason for which they wait."""

from tests.flowmesh_core.machine.world import CODE, SOLO, World, plan, step

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.accounting.daily_totals import HOUR_S
from flowmesh_core.machine.events import NamespaceLimits, NamespaceLimitsChanged
from flowmesh_core.machine.settings import Settings
from flowmesh_core.units import NANO_PER_USD

CODE_POOL = {"allows_user_code": True, "sandbox": "landlock", "device_memory_mib": 1 << 20}


def limited(**limits: NamespaceLimits) -> NamespaceLimitsChanged:
    return NamespaceLimitsChanged({name.replace("_", "-"): limit for name, limit in limits.items()})


def reasons(world: World, uid: str) -> set[tuple[str, str]]:
    steps = world.machine.state.runs[uid].steps.values()
    return {(s.wait_reason, s.wait_detail) for s in steps if s.wait_reason}


def code_of(world: World) -> list[str]:
    return [a.tenant for a in world.attempts()]


def finish_all(world: World) -> None:
    for attempt in world.attempts():
        world.finish(attempt.attempt_id)


def submit_code(world: World, namespace: str, count: int) -> str:
    steps = (step(f"s{n}", uses=CODE, of=namespace, n=n) for n in range(count))
    return world.submit(plan(*steps, namespace=namespace), namespace)


def workers(world: World, count: int = 8) -> None:
    world.join(*(f"w{n}" for n in range(count)), **CODE_POOL)


def test_calls_of_user_code_beyond_the_limit_wait_and_another_namespace_has_its_own() -> None:
    world = World()
    workers(world)
    world.apply(limited(team_a=NamespaceLimits(user_code_calls=2)))
    uid = submit_code(world, "team-a", 5)
    world.tick(1.0)
    assert code_of(world) == ["team-a"] * 2
    world.tick(1.0)
    assert code_of(world) == ["team-a"] * 2
    ((cause, text),) = reasons(world, uid)
    assert cause == RejectionCause.USER_CODE_QUOTA
    assert "as many calls of user code as its quota allows (2)" in text
    submit_code(world, "team-b", 3)
    world.tick(1.0)
    assert sorted(code_of(world)) == ["team-a"] * 2 + ["team-b"] * 3
    world.finish(world.attempts()[0].attempt_id)
    world.tick(1.0)
    assert len(code_of(world)) == 5


def test_other_work_of_a_namespace_is_placed_where_its_user_code_waits() -> None:
    world = World()
    workers(world)
    world.apply(limited(team_a=NamespaceLimits(user_code_calls=0)))
    uid = submit_code(world, "team-a", 2)
    world.submit(plan(step("x", uses=SOLO), namespace="team-a"))
    world.tick(1.0)
    ((cause, text),) = reasons(world, uid)
    assert cause == RejectionCause.USER_CODE_QUOTA
    assert text == (
        "the namespace's quota allows no calls of user code; ask an administrator for a larger "
        "userCodeCalls"
    )
    assert [a.engine for a in world.attempts()] == ["test.solo"]
    world.apply(limited())
    world.tick(1.0)
    assert len(world.attempts()) == 3


def test_no_limit_is_exceeded_at_any_time_until_all_is_done() -> None:
    world = World(settings=Settings(watchdog_s=1e9))
    workers(world, 3)
    world.apply(limited(team_a=NamespaceLimits(user_code_calls=2)))
    uids = [submit_code(world, name, 12) for name in ("team-a", "team-b")]

    def within(w: World) -> bool:
        calls = code_of(w)
        assert calls.count("team-a") <= 2
        return all(uid in w.finals for uid in uids)

    world.run(within)


def spend(world: World, namespace: str, dollars: float) -> None:
    state = world.machine.state
    state.daily_spend.add(namespace, int(dollars * NANO_PER_USD), world.now)


def test_a_namespace_that_has_spent_its_day_waits_and_goes_on_when_that_leaves_the_window() -> None:
    world = World(settings=Settings(watchdog_s=1e9))
    world.join("w")
    world.apply(limited(team_a=NamespaceLimits(nanousd_per_day=10 * NANO_PER_USD)))
    spend(world, "team-a", 10.5)
    uid = world.submit(plan(step("x", v=1), namespace="team-a"), "a")
    world.submit(plan(step("y", v=2), namespace="team-b"), "b")
    world.tick(1.0)
    world.tick(1.0)
    assert [a.run_uids for a in world.attempts()] == [("b",)]
    ((cause, text),) = reasons(world, uid)
    assert cause == RejectionCause.DOLLAR_QUOTA
    assert "namespace team-a has spent $10.50 in 24 hours, of at most $10.00" in text
    assert "it goes on at " in text
    assert "a larger usdPerDay" in text, "as the field of a quota is named"
    finish_all(world)
    world.tick(25 * HOUR_S)
    world.tick(1.0)
    assert [a.run_uids for a in world.attempts()] == [("a",)]


def test_a_namespace_that_may_spend_nothing_is_told_so() -> None:
    world = World(settings=Settings(watchdog_s=1e9))
    world.join("w")
    world.apply(limited(team_a=NamespaceLimits(nanousd_per_day=0)))
    uid = world.submit(plan(step("x", v=1), namespace="team-a"))
    ticks = [world.tick(1.0) for _ in range(3)]
    assert not world.attempts(), ticks
    ((cause, text),) = reasons(world, uid)
    assert cause == RejectionCause.DOLLAR_QUOTA
    assert text == (
        "namespace team-a may spend nothing; ask an administrator for a larger usdPerDay"
    )


def test_what_runs_counts_with_what_it_is_predicted_to_cost() -> None:
    world = World(settings=Settings(watchdog_s=1e9))
    world.join("w1", "w2", "w3")
    world.apply(limited(team_a=NamespaceLimits(nanousd_per_day=1000)))
    steps = (step(f"s{n}", uses=SOLO, n=n) for n in range(5))
    uid = world.submit(plan(*steps, namespace="team-a"), "a")
    world.tick(1.0)
    assert len(world.attempts()) == 1, "its reservation is more than is left"
    world.tick(1.0)
    assert len(world.attempts()) == 1
    ((cause, text),) = reasons(world, uid)
    assert cause == RejectionCause.DOLLAR_QUOTA
    assert "reserved" in text
    assert "it goes on when attempts under way have ended" in text


def test_receipts_are_exact_and_count_in_the_day() -> None:
    world = World(settings=Settings(watchdog_s=1e9))
    world.join("w1")
    world.submit(plan(*(step(f"s{n}", uses=SOLO, n=n) for n in range(5))), "a")
    world.run(lambda w: "a" in w.finals)
    state = world.machine.state
    assert state.daily_spend.total("team-a", world.now) == state.book.receipts_nanousd > 0


def test_a_namespace_that_stores_too_much_waits_and_what_runs_goes_on() -> None:
    world = World()
    world.join("w")
    world.submit(plan(step("x", v=1), namespace="team-a"), "a")
    world.tick(1.0)
    world.apply(limited(team_a=NamespaceLimits(storage_full="namespace team-a stores 2 TiB")))
    late = world.submit(plan(step("y", v=2), namespace="team-a"), "late")
    world.tick(1.0)
    world.tick(1.0)
    assert [a.run_uids for a in world.attempts()] == [("a",)]
    assert reasons(world, late) == {(RejectionCause.STORAGE_QUOTA, "namespace team-a stores 2 TiB")}
    finish_all(world)
    assert world.finals["a"].phase == "Succeeded"
    world.apply(limited())
    world.tick(1.0)
    assert [a.run_uids for a in world.attempts()] == [("late",)]


def test_an_action_that_another_namespace_wants_too_is_placed_for_that_one() -> None:
    world = World()
    world.join("w")
    world.apply(limited(team_a=NamespaceLimits(storage_full="full")))
    world.submit(plan(step("x", v=1), namespace="team-a"), "a", share="group-x")
    world.tick(1.0)
    assert world.attempts() == []
    world.submit(plan(step("x", v=1), namespace="team-b"), "b", share="group-x")
    world.tick(1.0)
    assert [set(a.run_uids) for a in world.attempts()] == [{"a", "b"}]


def test_a_hold_keeps_its_text_while_it_continues() -> None:
    world = World(settings=Settings(watchdog_s=1e9))
    world.join("w")
    world.apply(limited(team_a=NamespaceLimits(nanousd_per_day=1)))
    spend(world, "team-a", 1.0)
    world.tick(1.0)
    before = dict(world.machine.state.held)
    spend(world, "team-a", 1.0)
    world.tick(2.0)
    assert world.machine.state.held == before
