"""Serves the ready actions in fair order, each at its best place."""

from collections import Counter
from dataclasses import dataclass, field
from math import inf

from flowmesh_core.fleet.snapshot import ReadyAction, RejectionCause
from flowmesh_core.scheduler.accounts import WAIT
from flowmesh_core.scheduler.candidates import Options, Tick
from flowmesh_core.scheduler.claims import claim
from flowmesh_core.scheduler.groups import Group
from flowmesh_core.scheduler.order import FairOrder
from flowmesh_core.scheduler.seeker import Place, Seeker
from flowmesh_core.units import Digest


@dataclass(slots=True)
class Served:
    """An action with the place it got."""

    action: ReadyAction
    seeker: Seeker
    place: Place


@dataclass(slots=True)
class Outcome:
    """What a tick has given away, and why it did not give the rest.

    Attributes:
        rejected: (signature, cause, detail) → count.
    """

    served: list[Served] = field(default_factory=list)
    rejected: Counter[tuple[Digest, RejectionCause, str]] = field(default_factory=Counter)

    def reject(self, group: Group, options: Options, count: int) -> None:
        """Counts actions of a group as rejected for the group's reason."""
        if count:
            self.rejected[group.info.signature, options.cause, options.detail] += count


def serve(tick: Tick, groups: list[Group], outcome: Outcome) -> None:
    """Places what fits; every action of the groups ends served or counted as rejected once."""
    options = [tick.options(group) for group in groups]
    lasting: list[Group] = []
    reasons: list[Options] = []
    for group, found in zip(groups, options, strict=True):
        if found.cause is RejectionCause.BUSY:
            lasting.append(group)
            reasons.append(found)
        else:
            outcome.reject(group, found, group.count)
    seekers = [
        Seeker(group, found, tick.accounts) if found.scale else None
        for group, found in zip(lasting, reasons, strict=True)
    ]
    order = FairOrder(lasting, tick.snapshot.fair_share, tick.snapshot.tenant_weights)
    while (head := order.pop()) is not None:
        action, number = head
        group, seeker = lasting[number], seekers[number]
        place = _place_for(tick, action, seeker) if seeker else None
        if place is None:
            if not tick.has_lane(group):
                claim(tick, group, action)
            outcome.reject(group, reasons[number], 1 + order.drop(number))
        elif place.tier >= WAIT:
            outcome.reject(group, reasons[number], 1)
            if seeker and seeker.only_waiting():
                outcome.reject(group, reasons[number], order.drop(number))
            else:
                tick.wait(group, place.member)
        elif seeker:
            tick.take(group, action, place.member)
            outcome.served.append(Served(action, seeker, place))
            if not group.replica_of:
                order.charge(action.tenant, place.option.prospect.nanousd)


def _place_for(tick: Tick, action: ReadyAction, seeker: Seeker) -> Place | None:
    if action.deadline_s == inf:
        return seeker.best()
    return seeker.best_by(action.deadline_s - tick.snapshot.now_s)
