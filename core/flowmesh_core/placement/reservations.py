"""Reserves a worker for an action that would otherwise starve behind busy engine instances.

An action that fits nowhere, and whose signature has no instance, would wait forever behind
instances that later actions keep full. Once it has waited longer than a change of engines costs, a
worker is reserved at its turn in the fair order. The instances that must end take nothing more in
this cycle, and free memory is set aside. Batch schedulers call this a backfill reservation (ADR 5).
"""

from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import InstanceView
from flowmesh_core.placement.action_groups import ActionGroup
from flowmesh_core.placement.capacity import WorkerCapacity
from flowmesh_core.placement.cycle import SchedulingCycle
from flowmesh_core.placement.settings import RESERVATION_PATIENCE_LOADS, RESERVATION_PATIENCE_S


def reserve_worker(tick: SchedulingCycle, group: ActionGroup, action: ReadyAction) -> None:
    """Reserves a worker for a group that fits nowhere, if its action has waited long enough."""
    if not group.isolate and group.info.signature in tick.running:
        return
    waited_s = tick.snapshot.now_s - action.ready_s
    if waited_s < RESERVATION_PATIENCE_S:
        return
    best: tuple[float, int] | None = None
    victims: list[InstanceView] = []
    for kind, cause in enumerate(tick.unmet(group)):
        for index in tick.kinds[kind] if cause is None else ():
            account = tick.accounts[index]
            suspects_meet = account.suspected and (group.isolate or group.info.suspects_of)
            barred = suspects_meet or (group.bound and not tick.admits(group, index))
            if account.reserved or barred or account.view.name in group.excluded:
                continue
            load_s = tick.open_s(group, index)
            instances = _instances_to_close(account, group)
            if instances is None or waited_s < RESERVATION_PATIENCE_LOADS * load_s:
                continue
            ready_in_s = max((instance.remaining_s for instance in instances), default=0.0) + load_s
            if best is None or (ready_in_s, index) < best:
                best, victims = (ready_in_s, index), instances
    if best is not None:
        # The instances close at the group's turn, so they close only to actions behind it in the
        # fair order. Actions before it have already taken their slots and keep them. Closing the
        # instances before nomination would also hold earlier groups back: a tenant that has had
        # more than its share could block tenants that had less with one large waiting action. The
        # instances drain all the same, because later actions no longer feed them:
        # test_an_always_busy_instance_makes_room_for_an_action_that_has_waited_long.
        account = tick.accounts[best[1]]
        freed_mib = sum(instance.freed_mib for instance in victims)
        account.reserved = True
        account.claimed_mib = max(0, group.info.requirement.memory_mib - freed_mib)
        for instance in victims:
            account.close(instance.signature)
        account.changed()


def may_have_slot(account: WorkerCapacity, group: ActionGroup) -> bool:
    """Whether a group can join an instance here, or has memory for a new one once others end."""
    joins = not group.isolate and group.info.signature in account.view.instances
    return joins or _instances_to_close(account, group) is not None


def _instances_to_close(account: WorkerCapacity, group: ActionGroup) -> list[InstanceView] | None:
    """Returns the instances that must end for the group to fit; None if it never fits.

    An isolated action also ends the signature's own instance, which comes first. The others follow,
    soonest to end first.
    """
    need_mib = group.info.requirement.memory_mib - account.view.free_memory_mib
    found: list[InstanceView] = []
    occupied = [instance for instance in account.view.instances.values() if instance.assigned]
    own = [instance for instance in occupied if instance.signature == group.info.signature]
    if group.isolate:
        found.extend(own)
        need_mib -= sum(instance.freed_mib for instance in own)
    for instance in sorted(
        occupied, key=lambda instance: (instance.remaining_s, instance.signature)
    ):
        if need_mib <= 0:
            break
        if instance not in found and not instance.pinned:
            found.append(instance)
            need_mib -= instance.freed_mib
    return found if need_mib <= 0 else None
