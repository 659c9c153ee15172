"""Transitions of an action's state: a change outside the table raises with its story."""

import pytest
from tests.flowmesh_core.machine.world import World, only, plan, step

from flowmesh_api.v1.enums import ActionState
from flowmesh_core.errors import InvariantError
from flowmesh_core.machine.transitions import ACTION_TRANSITIONS


def test_a_transition_that_is_not_in_the_table_raises_with_the_actions_history(
    world: World,
) -> None:
    world.join("w1")
    world.submit(plan(step("a")))
    world.tick(0.1)
    attempt_id = only(world).attempt_id
    action = world.machine.state.attempts[attempt_id].action
    with pytest.raises(InvariantError, match=f"running → looking-up .*attempts: {attempt_id}"):
        action.move(ActionState.LOOKING_UP)
    assert action.state is ActionState.RUNNING


def test_an_action_that_has_ended_never_changes_again() -> None:
    ended = {ActionState.DONE, ActionState.FAILED, ActionState.WITHDRAWN}
    assert not [pair for pair in ACTION_TRANSITIONS if pair[0] in ended]
    assert {after for _, after in ACTION_TRANSITIONS} >= ended
