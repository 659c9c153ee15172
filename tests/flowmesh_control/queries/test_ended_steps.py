"""What is asked of a step that has ended says nothing of other runs that do the same."""

from typing import Any, cast

from tests.flowmesh_core.machine.world import World, plan, step

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.queries.explain import explain_step
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.queries.why import why_step
from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.status.projection import run_status


class Views:
    """The status of the runs of a world, without their ledgers."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def status(self, uid: str) -> RunStatus:
        return run_status(self._world.machine.state, uid, self._world.now)

    async def weights(self, uid: str) -> UtilityWeights | None:
        raise AssertionError("the run is known to the machine")

    async def lines(self, uid: str) -> list[Any]:
        return []


async def test_a_failed_steps_action_belongs_to_another_run_that_requests_it_again() -> None:
    world = World()
    world.join("w1")
    failed = world.submit(plan(step("a"), step("b", value=2)))
    world.tick(0.1)
    (mine,) = (a for a in world.attempts() if not a.params)
    world.fail(mine.attempt_id, "user-code")
    other = world.submit(plan(step("a"), step("b", value=2)))
    world.tick(0.1)
    state, views = world.machine.state, cast(RunViews, Views(world))
    (part,) = (await why_step(state, views, failed, "a")).parts
    assert (part.state, part.subscribers, part.attempts) == ("", (), ())
    assert not (await explain_step(state, views, failed, "a", world.now)).actions
    (part,) = (await why_step(state, views, other, "a")).parts
    assert (part.state, part.subscribers) == ("running", (other,))
    assert len((await explain_step(state, views, other, "a", world.now)).actions) == 1
