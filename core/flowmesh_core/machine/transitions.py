"""Every allowed change of an action's state; ``Action.move`` enforces it.

Step runs have their table in ``lifecycle_states``. ``docs/states.md`` describes both.
"""

from flowmesh_api.v1.enums import ActionState

ACTION_TRANSITIONS: frozenset[tuple[ActionState, ActionState]] = frozenset(
    {
        (ActionState.LOOKING_UP, ActionState.READY),  # not published yet
        (ActionState.LOOKING_UP, ActionState.DONE),  # a hit
        (ActionState.LOOKING_UP, ActionState.WITHDRAWN),
        (ActionState.READY, ActionState.RUNNING),
        (ActionState.READY, ActionState.FAILED),
        (ActionState.READY, ActionState.WITHDRAWN),
        (ActionState.RUNNING, ActionState.RUNNING),  # a replica attempt
        (ActionState.RUNNING, ActionState.PUBLISHING),
        (ActionState.RUNNING, ActionState.READY),  # lost, preempted, or tried again
        (ActionState.RUNNING, ActionState.FAILED),
        (ActionState.RUNNING, ActionState.WITHDRAWN),
        (ActionState.PUBLISHING, ActionState.DONE),
        (
            ActionState.PUBLISHING,
            ActionState.RUNNING,
        ),  # the store refused the result, or it was given up
        (ActionState.PUBLISHING, ActionState.WITHDRAWN),
    }
)
