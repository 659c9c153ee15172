"""Serves the ready actions in fair order, each at its best place."""

from collections import Counter
from dataclasses import dataclass, field

from flowmesh_core.fleet.snapshot import ReadyAction, RejectionCause
from flowmesh_core.scheduler.accounts import WAIT
from flowmesh_core.scheduler.candidates import Candidates, Options
from flowmesh_core.scheduler.claims import claim
from flowmesh_core.scheduler.groups import Group, is_urgent
from flowmesh_core.scheduler.order import FairOrder
from flowmesh_core.scheduler.seeker import Place, Seeker
from flowmesh_core.scheduler.tick import Tick
from flowmesh_core.units import Digest


@dataclass(slots=True, eq=False)
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
    candidates = Candidates(tick)
    able: list[tuple[Group, Options, Seeker | None]] = []
    for group in groups:
        found = candidates.of(group)
        if found.only_waiting():
            outcome.reject(group, found, group.count)
        elif found.cause is RejectionCause.BUSY:
            seeker = Seeker(tick, group, found, found.scale) if found.scale else None
            able.append((group, found, seeker))
        else:
            outcome.reject(group, found, group.count)
    snapshot = tick.snapshot
    order = FairOrder([group for group, _, _ in able], snapshot.fair_share, snapshot.tenant_weights)
    while (head := order.pop()) is not None:
        action, number = head
        group, reason, seeker = able[number]
        place = _place_for(seeker, action, snapshot.now_s) if seeker else None
        if seeker is not None and place is not None and place.tier >= WAIT:
            patient = _patient(tick, seeker)
            if patient > 0:
                count = 1 + order.skip(number, patient - 1)
                tick.waiting[group.info.signature] += count
                outcome.reject(group, reason, count)
                continue
            place = seeker.best_now()
        if seeker is None or place is None:
            claim(tick, group, action)
            outcome.reject(group, reason, 1 + order.drop(number))
            continue
        tick.take(group, action, place.member)
        outcome.served.append(Served(action, seeker, place))
        if not group.replica_of:
            order.charge(place.prospect.nanousd)


def _patient(tick: Tick, seeker: Seeker) -> float:
    """How many more actions of the signature are better off waiting than in the best place now."""
    return seeker.would_wait() - tick.waiting[seeker.group.info.signature]


def _place_for(seeker: Seeker, action: ReadyAction, now_s: float) -> Place | None:
    if is_urgent(action):
        return seeker.best_by(action, action.deadline_s - now_s)
    return seeker.best_for(action) if action.inputs else seeker.best()
