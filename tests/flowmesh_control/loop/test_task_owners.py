"""Whose store work is whose, on the real machine."""

import msgspec
from tests.flowmesh_core.machine.world import MAP, World, dataset, only, plan, rows_of, step

from flowmesh_control.loop.task_owners import WorkOwners
from flowmesh_core.machine import commands as c
from flowmesh_core.machine import events as e
from flowmesh_core.machine.settings import Settings
from flowmesh_core.protocol.results import ActionResult, Provenance


def muted() -> World:
    world = World(mute_store=True)
    world.join("w1")
    return world


def test_a_look_up_belongs_to_its_run_until_the_run_is_cancelled() -> None:
    world, rows = muted(), dataset("one", "two")
    owners = WorkOwners(world.machine.state)
    made = plan(step("m", rows_of(rows), uses=MAP), step("n", value=1), namespace="team-b")
    uid = world.submit(made, artifacts=[rows])
    looks = [command for command in world.unanswered if isinstance(command, c.LookUp)]
    assert len(looks) == 2
    assert [owners.namespaces(look) for look in looks] == [("team-b",)] * 2
    assert all(owners.awaits(look) for look in looks)
    world.apply(e.CancelRequested(uid, "not needed"))
    assert not any(owners.awaits(look) for look in looks)


def test_a_look_up_that_was_answered_is_not_awaited_any_more() -> None:
    world = muted()
    owners = WorkOwners(world.machine.state)
    world.submit(plan(step("n", value=1)))
    (look,) = world.unanswered
    assert isinstance(look, c.LookUp)
    world.machine.apply(e.LookedUp(look.key, None), world.now)
    assert not owners.awaits(look)


def test_work_for_a_runs_end_counts_for_the_runs_namespace() -> None:
    world = muted()
    owners = WorkOwners(world.machine.state)
    uid = world.submit(plan(step("n", value=1), namespace="team-b"))
    (key,) = world.machine.state.actions
    result = ActionResult(key.action_id, 1, "test.noop", 1, 1, {}, {}, run_uid=uid)
    publish = c.Publish(key, result)
    assert owners.namespaces(publish) == ("team-b",)
    check = c.CheckBlobs(uid, {}, ())
    assert owners.namespaces(check) == ("team-b",)
    assert not owners.awaits(check)
    world.machine.state.runs[uid].checking = True
    assert owners.awaits(check)
    assert not owners.awaits(c.CheckBlobs("another", {}, ()))
    assert owners.namespaces(c.FinalizeRun(uid)) == ("team-b",)
    assert owners.namespaces(c.FinalizeRun("another")) == ("",)


def test_shared_work_of_two_namespaces_is_served_at_the_turn_of_either() -> None:
    world, rows = muted(), dataset("one", "two")
    owners = WorkOwners(world.machine.state)
    for team in ("team-a", "team-b", "team-b"):
        made = plan(step("m", rows_of(rows), uses=MAP), step("n", value=1), namespace=team)
        world.submit(made, share="group-x", artifacts=[rows])
    looks = [command for command in world.unanswered if isinstance(command, c.LookUp)]
    assert [owners.namespaces(look) for look in looks] == [
        ("team-a",), ("team-a",), ("team-b",), ("team-b",)
    ]  # fmt: skip
    assert [look.key for look in looks[:2]] == [look.key for look in looks[2:]]
    single = next(key for key in world.machine.state.actions)
    publish = c.Publish(single, ActionResult(single.action_id, 1, "test.noop", 1, 1, {}, {}))
    assert owners.namespaces(publish) == ("team-a", "team-b")
    world.answer()
    world.run()
    assert [final.phase for final in world.finals.values()] == ["Succeeded"] * 3


def test_the_weights_are_those_of_placement() -> None:
    world = World(settings=Settings(tenant_weights={"team-b": 3.0}))
    owners = WorkOwners(world.machine.state)
    assert (owners.weight("team-b"), owners.weight("team-a")) == (3.0, 1.0)


def test_a_publication_is_awaited_as_long_as_its_attempt() -> None:
    world = World()
    world.join("w1")
    world.submit(plan(step("n", value=1)))
    world.tick(0.1)
    world.mute_store = True
    world.finish(only(world).attempt_id)
    (publish,) = world.unanswered
    assert isinstance(publish, c.Publish)
    owners = WorkOwners(world.machine.state)
    assert owners.awaits(publish)
    other = msgspec.structs.replace(publish.result, provenance=Provenance())
    assert not owners.awaits(msgspec.structs.replace(publish, result=other))
    world.answer()
    assert not owners.awaits(publish)


def test_the_publications_of_two_attempts_of_one_action_are_awaited_one_by_one() -> None:
    world = World()
    owners = WorkOwners(world.machine.state)
    world.join("w1")
    uids = []
    for _ in range(2):
        uids.append(world.submit(plan(step("n", value=1))))
        world.mute_store = False
        world.tick(0.1)
        world.mute_store = True
        world.finish(only(world).attempt_id)
        world.apply(e.CancelRequested(uids[0]))
        world.mute_store = False
    old, new = (command for command in world.unanswered if isinstance(command, c.Publish))
    assert owners.awaits(old)
    assert owners.awaits(new)
    world.answer()
    assert not owners.awaits(old)
    assert not owners.awaits(new)
    assert [world.finals[uid].phase for uid in uids] == ["Cancelled", "Succeeded"]
