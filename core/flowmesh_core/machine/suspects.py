"""Finds the action that ends its hosts: suspects run together, in ever smaller groups.

When a host crashes, any action that ran in it may be the cause. To run each of them alone would
find it, and would load the engine as often as there are actions. So they are halved: each half runs
in a host of its own, the half whose host crashes is halved again, and the guilty one of ``n``
actions is found after at most ``2 * ceil(log2(n))`` hosts (ADR 18). The same holds for what ran on
a worker that is lost, where each action has lost one before.

A group is a signature that only its actions have. So placement, capacity and the worker handle it
as any other, and one worker has one group of suspects at a time.
"""

from dataclasses import replace

from flowmesh_api.v1.enums import ActionState
from flowmesh_core.errors import FailureKind
from flowmesh_core.identity.digest import digest_value
from flowmesh_core.machine import ready_actions
from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.machine.model import Action, Attempt
from flowmesh_core.machine.state import State
from flowmesh_core.machine.suspect_groups import SuspectCase, SuspectGroup
from flowmesh_core.units import Digest

_AT_WORK = ("running", "storing")


def beside(worker: Worker | None, attempt: Attempt, kind: FailureKind) -> list[Attempt]:
    """Returns the other attempts that may have caused the same end of a host or a worker.

    Of a lost worker, only those whose action has lost one before: workers are lost for many reasons
    in which no action has a part.
    """
    if worker is None or attempt.alone:
        return []
    crashed = kind is FailureKind.HOST_CRASHED
    signature = attempt.info.signature
    return [
        a
        for a in worker.attempts.values()
        if a.info.signature == signature
        and not a.alone
        and (crashed or a.action.losses > 0)
        and (a.phase in _AT_WORK and not a.loading)
    ]


def divide(state: State, attempt: Attempt, others: list[Attempt]) -> None:
    """Puts the action of a failed attempt into its half of those that ran together.

    Called for each of them in turn; the first call divides all.
    """
    if attempt.next_group is None:
        _halve(state, attempt, others)
    group, attempt.next_group = attempt.next_group, None
    action = attempt.action
    leave(state, action)
    if group is None:
        return
    if group.case.found:
        action.isolate = action.isolate or group.alone
        return
    if group.alone or group.info.base != action.info.signature:
        action.isolate = True
        group = SuspectGroup(group.case, action.info, alone=True)
    else:
        state.signatures[group.info.signature] = group.info
        state.suspects[group.info.signature] = group
    group.actions[action.key] = None
    action.suspects = group


def _halve(state: State, attempt: Attempt, others: list[Attempt]) -> None:
    """Makes the groups in which those that ran together run from now on."""
    known = attempt.action.suspects
    case = known.case if known is not None else SuspectCase(found=not others)
    together = [attempt, *(a for a in others if a.next_group is None)]
    middle = (len(together) + 1) // 2
    base = state.signatures[attempt.info.base]
    for members in (together[:middle], together[middle:]):
        if not members:
            continue
        # The id of an attempt would not do: one that was lost may come back, and be lost once more.
        state.suspect_groups_made += 1
        name = digest_value("suspects", [base.signature, state.epoch, state.suspect_groups_made])
        info = replace(base, signature=name, suspects_of=base.signature)
        group = SuspectGroup(case, info, alone=len(members) == 1)
        for member in members:
            member.next_group = group


def leave(state: State, action: Action) -> None:
    """Removes an action from its group; a group without actions is forgotten."""
    group, action.suspects = action.suspects, None
    if group is None:
        return
    group.actions.pop(action.key, None)
    if not group.actions and state.suspects.pop(group.info.signature, None) is not None:
        del state.signatures[group.info.signature]


def found(state: State, action: Action) -> None:
    """Ends the case of an action that has ended its host alone: the others are suspects no more."""
    if action.suspects is None:
        return
    case = action.suspects.case
    case.found = True
    for group in [g for g in state.suspects.values() if g.case is case]:
        for key in list(group.actions):
            other = state.actions[key]
            leave(state, other)
            if other.state is ActionState.READY:
                ready_actions.mark_changed(state, other)
    state.dirty = True


def requirement_changed(state: State, action: Action) -> None:
    """Isolates a suspect that now needs another kind of worker than its group."""
    group = action.suspects
    if group is None or group.alone or group.info.base == action.info.signature:
        return
    leave(state, action)
    action.isolate = True
    action.suspects = SuspectGroup(group.case, action.info, {action.key: None}, alone=True)


def run_elsewhere(state: State, signature: Digest, worker: Worker) -> bool:
    """Whether another worker runs this group of suspects: two would be two hosts."""
    group = state.suspects.get(signature)
    return group is not None and any(
        attempt.worker != worker.name and attempt.info.signature == signature
        for key in group.actions
        for attempt in state.actions[key].attempts.values()
    )


def waive(state: State, attempt: Attempt) -> None:
    """Has the fabric pay for a suspect's attempt, unless the guilty action was found before."""
    if attempt.case is not None and not attempt.case.found:
        state.book.fabric_nanousd += attempt.charged_nanousd
        attempt.charged_nanousd = attempt.load_nanousd = 0
