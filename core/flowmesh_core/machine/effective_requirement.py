"""The one requirement that an action shows the scheduler: of its subscriptions, the least.

An attempt that suits one subscription may serve all, since a result is as good wherever it was made
(ADR 36). So an action is placed by a requirement that no other subscription undercuts. Where
several cannot be compared, such as two device classes, they take turns while nothing is placed.
Computed when a subscription joins or leaves, never in a scheduling cycle.
"""

from flowmesh_core.fleet.snapshot import Requirement, SignatureInfo
from flowmesh_core.machine import ready_actions, suspects
from flowmesh_core.machine.model import Action
from flowmesh_core.machine.state import State
from flowmesh_core.machine.terms import Terms
from flowmesh_core.placement.constraints import unmet

TURN_S = 10.0
"""Seconds for which one of several requirements is shown while nothing is placed."""


def undercuts(one: Requirement, other: Requirement) -> bool:
    """Whether every worker that meets ``other`` meets ``one``, both of one action."""
    products = set(one.gpu_product)
    return (
        one.memory_mib <= other.memory_mib
        and one.tensor_parallel <= other.tensor_parallel
        and one.labels.items() <= other.labels.items()
        and one.anti_labels.items() <= other.anti_labels.items()
        and one.min_trust <= other.min_trust
        and (not products or (bool(other.gpu_product) and products.issuperset(other.gpu_product)))
    )


def joined(state: State, action: Action, terms: Terms) -> None:
    """Takes the terms of a new subscription into account."""
    info = terms.info
    for option in action.options:
        if option is info or undercuts(option.requirement, info.requirement):
            return
    _set(state, action, (*action.options, info))


def left(state: State, action: Action, terms: Terms) -> None:
    """Forgets the terms of a subscription that has left."""
    info = terms.info
    if not action.subscribers or not any(option is info for option in action.options):
        return
    if any(s.terms.info is info for s in action.subscribers.values()):
        return
    infos = [s.terms.info for s in action.subscribers.values()]
    _set(state, action, tuple({(i.signature, i.requirement.min_trust): i for i in infos}.values()))


def _set(state: State, action: Action, infos: tuple[SignatureInfo, ...]) -> None:
    """Shows the first of the least requirements; equal ones count as the earlier."""
    least: list[SignatureInfo] = []
    for info in infos:
        if not any(undercuts(o.requirement, info.requirement) for o in least):
            least = [o for o in least if not undercuts(info.requirement, o.requirement)]
            least.append(info)
    action.options = tuple(least)
    if not any(option is action.info for option in least):
        _show(state, action, least[0])
    ready_actions.alternate(state, action)


def _show(state: State, action: Action, info: SignatureInfo) -> None:
    action.info, action.info_since_s = info, state.observed_s
    suspects.requirement_changed(state, action)
    ready_actions.mark_changed(state, action)
    state.dirty = True


def take_turns(state: State) -> None:
    """Shows the next requirement of actions that were not placed by the present one for long."""
    for action in state.alternating.values():
        if state.observed_s - action.info_since_s >= TURN_S:
            show_next(state, action)


def show_next(state: State, action: Action) -> None:
    """Shows the next of several requirements that cannot be compared."""
    shown = [o is action.info for o in action.options].index(True)
    _show(state, action, action.options[(shown + 1) % len(action.options)])


def placeable(state: State, info: SignatureInfo) -> bool:
    """Whether some connected worker meets a requirement."""
    return any(unmet(info.requirement, w.shape) is None for w in state.workers.values())
