"""Which reserved pools an action may run in: those of a namespace that has subscribed to it."""

from collections.abc import Mapping

from flowmesh_core.machine import ready_actions
from flowmesh_core.machine.state import State


def changed(state: State, pools: Mapping[str, frozenset[str]]) -> None:
    """Makes these the reserved pools; attempts that run already go on."""
    if pools == state.reserved_pools:
        return
    state.reserved_pools = dict(pools)
    for action in state.ready.values():
        ready_actions.mark_changed(state, action)
    state.dirty = True
