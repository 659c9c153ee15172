"""Serves the ready actions in fair order, each at its best place."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import floor

from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import RejectionCause
from flowmesh_core.scheduler.accounts import WAIT
from flowmesh_core.scheduler.candidates import Candidates, Options
from flowmesh_core.scheduler.claims import claim
from flowmesh_core.scheduler.groups import Group, is_urgent
from flowmesh_core.scheduler.order import FairOrder
from flowmesh_core.scheduler.seeker import Place, Seeker
from flowmesh_core.scheduler.tick import Tick
from flowmesh_core.units import Digest

MANY = 2**40


@dataclass(slots=True, eq=False)
class Client:
    """A group that is to be served.

    Attributes:
        seeker: None where no worker has a place or a lane to wait for.
        served: how many of its actions have a place; the others are rejected in the end.
    """

    group: Group
    options: Options
    seeker: Seeker | None
    served: int = 0


@dataclass(slots=True, eq=False)
class Served:
    """An action with the place it got."""

    action: ReadyAction
    seeker: Seeker
    place: Place


def clients_of(tick: Tick, groups: Iterable[Group]) -> list[Client]:
    """The groups with their candidates on the accounts as they are."""
    candidates = Candidates(tick)
    found: list[Client] = []
    for group in groups:
        options = candidates.of(group)
        seeker = None
        if options.scale is not None and not options.full:
            seeker = Seeker(tick, group, options, options.scale)
        found.append(Client(group, options, seeker))
    return found


def serve(
    tick: Tick, clients: list[Client], placed: Collection[Digest] = frozenset()
) -> list[Served]:
    """Places what fits, in fair order; what is left of a group stays in its queues.

    Groups that no worker can ever run are passed over, and those whose lanes are all full: they
    need no turn, since there is something that they wait for. So are actions that were ``placed``.
    """
    able = {
        client.group.ready: client
        for client in clients
        if client.options.cause is RejectionCause.BUSY and not client.options.full
    }
    snapshot = tick.snapshot
    order = FairOrder(snapshot.ready, able, tick.virtual_time, snapshot.tenant_weights, placed)
    served: list[Served] = []
    while (head := order.pop()) is not None:
        action, ready = head
        client = able[ready]
        group, seeker = client.group, client.seeker
        place = _place_for(seeker, action, snapshot.now_s) if seeker else None
        if seeker is not None and place is not None and place.tier >= WAIT:
            patient = _patient(tick, seeker)
            if patient > 0:
                tick.waiting[group.info.signature] += _wait(order, client, patient)
                continue
            place = seeker.best_now(action)
        if seeker is None or place is None:
            claim(tick, group, action)
            order.drop(ready)
            continue
        order.skip()
        tick.take(group, action, place.member)
        client.served += 1
        served.append(Served(action, seeker, place))
        if not group.replica_of:
            order.charge(place.prospect.nanousd)
    return served


def again(tick: Tick, clients: list[Client], freed: set[int]) -> list[Client]:
    """The groups with actions left that would use a place which became free on these workers."""
    found = [client for client in clients if _could_use(tick, client, freed)]
    for client in found:
        tick.waiting[client.group.info.signature] = 0
    return [client for client in found if _would_use(tick, client)]


def _could_use(tick: Tick, client: Client, freed: set[int]) -> bool:
    group = client.group
    if client.options.cause is not RejectionCause.BUSY or client.served == group.count:
        return False
    unmet = tick.unmet(group.info)
    able = {m for kind, cause in enumerate(unmet) if cause is None for m in tick.kinds[kind]}
    accounts = (tick.accounts[m] for m in freed & able)
    tiers = [a.place_tier(group.info, alone=group.isolate) for a in accounts]
    return any(tier is not None and tier < WAIT for tier in tiers)


def _would_use(tick: Tick, client: Client) -> bool:
    """Looks at the places again; says whether fewer than are left would rather wait."""
    client.options.full = False
    if client.seeker is not None:
        client.seeker.reset()
    elif client.options.scale is not None:
        client.seeker = Seeker(tick, client.group, client.options, client.options.scale)
        client.seeker.reset()
    else:
        # It had no candidates on the snapshot; now it has.
        options = Candidates(tick).of(client.group)
        if options.scale is not None:
            client.options = options
            client.seeker = Seeker(tick, client.group, options, options.scale)
    place = client.seeker.best() if client.seeker is not None else None
    if client.seeker is None or place is None or place.tier < WAIT:
        return place is not None
    return client.seeker.would_wait() < client.group.count - client.served


def _patient(tick: Tick, seeker: Seeker) -> int:
    """How many more actions of the signature are better off waiting than in the best place now."""
    return floor(min(seeker.would_wait(), MANY)) - tick.waiting[seeker.group.info.signature]


def _wait(order: FairOrder, client: Client, patient: int) -> int:
    """Leaves up to so many actions of a group unplaced, and says how many."""
    left = client.group.count - client.served
    if patient >= left:
        order.drop(client.group.ready)
        return left
    return order.skip(patient)


def _place_for(seeker: Seeker, action: ReadyAction, now_s: float) -> Place | None:
    if is_urgent(action):
        return seeker.best_by(action, action.deadline_s - now_s)
    return seeker.best_for(action) if action.inputs else seeker.best()
