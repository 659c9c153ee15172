"""What a collection keeps for runs that go on."""

from tests.flowmesh_core.machine.world import World, metrics, only, plan, step

from flowmesh_control.cache.roots import live_artifacts
from flowmesh_core.machine.events import CancelRequested


def test_the_outputs_of_an_unpublished_result_are_retained() -> None:
    world, made = World(), metrics(value="made")
    world.join("w1")
    uid = world.submit(plan(step("n")))
    world.tick(0.1)
    world.mute_store = True
    world.finish(only(world).attempt_id, outputs={"metrics": made})
    world.lose("w1")
    assert made in [a for _, a in live_artifacts(world.machine.state)]
    world.apply(CancelRequested(uid))
    assert made in [a for _, a in live_artifacts(world.machine.state)]
    world.answer()
    assert made not in [a for _, a in live_artifacts(world.machine.state)]


def test_the_outputs_of_an_end_that_awaits_its_run_after_a_restart_are_retained() -> None:
    before, made = World(), metrics(value="made")
    before.join("w1")
    before.submit(plan(step("n")))
    before.tick(0.1)
    ended = only(before).attempt_id
    world = World(epoch=2, recovering_until_s=1003.0)
    world.join("w1", ended=(before._end(ended, outputs={"metrics": made}),))
    assert made in [a for _, a in live_artifacts(world.machine.state)]
