"""Room for those who wait: keeps a lane that is always fed from holding its worker for ever.

An action whose engine has no lane and finds no room anywhere would starve behind lanes that later
actions keep full. Once it has waited longer than changing engines costs, its turn in the fair order
claims a worker: the lanes that must go take nothing from those behind it, and its free memory is
kept. Those before it in the order are not held back, so a claim never turns fairness round.
"""

from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import InstanceView
from flowmesh_core.placement.action_groups import ActionGroup
from flowmesh_core.placement.capacity import WorkerCapacity
from flowmesh_core.placement.cycle import SchedulingCycle
from flowmesh_core.placement.settings import RESERVATION_PATIENCE_LOADS, RESERVATION_PATIENCE_S


def claim(tick: SchedulingCycle, group: ActionGroup, action: ReadyAction) -> None:
    """Makes room for a group that has none, where its action has waited long enough."""
    if not group.isolate and group.info.signature in tick.running:
        return
    waited_s = tick.snapshot.now_s - action.ready_s
    if waited_s < RESERVATION_PATIENCE_S:
        return
    best: tuple[float, int] | None = None
    victims: list[InstanceView] = []
    for kind, cause in enumerate(tick.unmet(group.info)):
        for index in tick.kinds[kind] if cause is None else ():
            account = tick.accounts[index]
            suspects_meet = group.isolate and account.suspected
            if account.claimed or suspects_meet or account.view.name in group.excluded:
                continue
            load_s = tick.load_s(group, index)
            lanes = _to_close(account, group)
            if lanes is None or waited_s < RESERVATION_PATIENCE_LOADS * load_s:
                continue
            ready_in_s = max((lane.remaining_s for lane in lanes), default=0.0) + load_s
            if best is None or (ready_in_s, index) < best:
                best, victims = (ready_in_s, index), lanes
    if best is not None:
        account = tick.accounts[best[1]]
        freed_mib = sum(lane.memory_mib for lane in victims)
        account.claimed = True
        account.claimed_mib = max(0, group.info.requirement.memory_mib - freed_mib)
        for lane in victims:
            account.close(lane.signature)
        account.changed()


def _to_close(account: WorkerCapacity, group: ActionGroup) -> list[InstanceView] | None:
    """The lanes that must end for the group to fit, soonest first; None where it never will."""
    need_mib = group.info.requirement.memory_mib - account.view.free_memory_mib
    found: list[InstanceView] = []
    held = [lane for lane in account.view.lanes.values() if lane.held]
    own = [lane for lane in held if lane.signature == group.info.signature]
    if group.isolate:
        found.extend(own)
        need_mib -= sum(lane.memory_mib for lane in own)
    for lane in sorted(held, key=lambda lane: (lane.remaining_s, lane.signature)):
        if need_mib <= 0:
            break
        if lane not in found:
            found.append(lane)
            need_mib -= lane.memory_mib
    return found if need_mib <= 0 else None
