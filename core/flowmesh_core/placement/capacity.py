"""What a tick has given away: the mutable side of the snapshot's workers and lanes.

Made by ``decide`` from a snapshot and changed as it places. Capacity and memory are taken here and
nowhere else, so a tick cannot over-commit.
"""

from collections.abc import Sequence

from flowmesh_core.fleet.ready import SEQUENCES_AT_ONCE
from flowmesh_core.fleet.snapshot import InstanceView, Requirement, SignatureInfo, WorkerView
from flowmesh_core.units import Digest

RUN, AHEAD, WAIT = 0, 1, 2
"""Tiers of a lane's places: running at once; queued at the worker; not placed, waiting for it.
Tiers beyond ``WAIT`` wait for one more filling of the lane each; they are only reckoned with."""


class InstanceCapacity:
    """A lane as the tick fills it.

    Attributes:
        capacity: actions it runs at once, as far as they are admitted.
        limit: actions it may hold: twice the capacity, unless memory or a deadline forbids more.
        held: actions in it, those placed in this tick included.
        memory_mib: reserved while it holds anything.
        closed: takes nothing more in this tick.
    """

    __slots__ = ("capacity", "closed", "held", "limit", "memory_mib", "view")

    def __init__(
        self, capacity: int, limit: int, memory_mib: int, view: InstanceView | None
    ) -> None:
        """Takes the snapshot's view of the lane, or None where the tick opens it."""
        self.capacity = capacity
        self.limit = limit
        self.held = view.held if view else 0
        self.memory_mib = memory_mib
        self.closed = view.isolated if view else False
        self.view = view

    def guard(self, at_once: float) -> None:
        """Lowers the limit, so that the batch stays small enough for a deadline inside."""
        self.limit = max(self.held, min(self.limit, int(min(at_once, self.limit))))


class WorkerCapacity:
    """A worker as the tick fills it.

    Attributes:
        claimed: whether an action waits for lanes here to end; ``claimed_mib`` of the free memory
            is kept for it.
        suspected: whether an action here runs alone: two that may end their worker would meet at
            every loss, and the innocent one be taken for poison too.
    """

    __slots__ = (
        "_watchers",
        "claimed",
        "claimed_mib",
        "free_mib",
        "index",
        "lanes",
        "suspected",
        "view",
    )

    def __init__(self, index: int, view: WorkerView) -> None:
        """Takes the worker's place in the snapshot and its view."""
        self.index = index
        self.view = view
        self.free_mib = view.free_memory_mib
        self.lanes: dict[Digest, InstanceCapacity] = {}
        self._watchers: list[tuple[list[int], int]] = []
        self.claimed = False
        self.claimed_mib = 0
        self.suspected = any(lane.isolated for lane in view.lanes.values())

    def lane(self, info: SignatureInfo) -> InstanceCapacity | None:
        """The lane of a signature, opened by the snapshot or by this tick."""
        account = self.lanes.get(info.signature)
        if account is None:
            view = self.view.lanes.get(info.signature)
            if view is None:
                return None
            capacity = lane_capacity(info, view, self.view.shape.device_class)
            limit = lane_limit(info.requirement, capacity, self.view.shape.device_class)
            account = InstanceCapacity(capacity, limit, view.memory_mib, view)
            self.lanes[info.signature] = account
        return account

    def place_tier(self, info: SignatureInfo, *, alone: bool) -> int | None:
        """The tier of the next place for a signature; None where it cannot go here in this tick."""
        if alone and self.suspected:
            return None
        lane = self.lanes.get(info.signature)
        if lane is None and info.signature in self.view.lanes:
            lane = self.lane(info)
        if lane is None:
            return RUN if info.requirement.memory_mib <= self.unclaimed_mib() else None
        held = lane.held
        if lane.closed or (alone and held):
            return None
        if not held and _host_mib(lane, info, alone=alone) > self.unclaimed_mib():
            return None
        if held < lane.limit:
            return RUN if held < lane.capacity else AHEAD
        return WAIT

    def unclaimed_mib(self) -> int:
        """Memory for lanes that hold nothing yet."""
        return self.free_mib - self.claimed_mib

    def take(self, info: SignatureInfo, *, alone: bool) -> None:
        """Takes the next place, opening a lane where there is none."""
        lane = self.lanes.get(info.signature) or self.lane(info)
        if lane is None:
            lane = self.new_lane(info)
            self.lanes[info.signature] = lane
        if lane.held == 0:
            lane.memory_mib = _host_mib(lane, info, alone=alone)
            self.free_mib -= lane.memory_mib
            self.changed()
        lane.held += 1
        lane.closed = lane.closed or alone
        self.suspected = self.suspected or alone
        if alone or lane.held == lane.capacity or lane.held >= lane.limit:
            self.changed()

    def watch(self, stale: list[int], number: int) -> None:
        """Puts a number on a list when its next places change, of whatever signature; once."""
        self._watchers.append((stale, number))

    def changed(self) -> None:
        """Tells those who watch that its next places may be others now."""
        for stale, number in self._watchers:
            stale.append(number)
        self._watchers.clear()

    def close(self, signature: Digest) -> None:
        """Lets a lane of the snapshot take nothing more in this tick."""
        account = self.lanes.get(signature)
        if account is None:
            view = self.view.lanes[signature]
            account = InstanceCapacity(view.capacity, view.capacity, view.memory_mib, view)
            self.lanes[signature] = account
        account.closed = True

    def give_back(self, info: SignatureInfo) -> None:
        """Returns a place that this tick took."""
        lane = self.lanes[info.signature]
        lane.held -= 1
        if lane.held == 0:
            self.free_mib += lane.memory_mib
            if lane.view is None:
                del self.lanes[info.signature]

    def new_lane(self, info: SignatureInfo) -> InstanceCapacity:
        """A lane that the tick would open here."""
        device_class = self.view.shape.device_class
        capacity = lane_capacity(info, None, device_class)
        limit = lane_limit(info.requirement, capacity, device_class)
        return InstanceCapacity(capacity, limit, info.requirement.memory_mib, None)

    def idle(self) -> bool:
        """Whether it holds no action at all, nothing placed in this tick included."""
        if any(view.held for view in self.view.lanes.values()):
            return False
        return not any(lane.held for lane in self.lanes.values())


def _host_mib(lane: InstanceCapacity, info: SignatureInfo, *, alone: bool) -> int:
    """What the host for the next place reserves: one that runs an action alone is a new one."""
    return info.requirement.memory_mib if alone else lane.memory_mib


def lane_capacity(info: SignatureInfo, view: InstanceView | None, device_class: str) -> int:
    """Actions that a lane may run at once; while it loads, its contract's word is taken."""
    capacity = info.capacity
    if view is not None:
        known = view.load_remaining_s <= 0.0
        capacity = view.capacity if known else max(view.capacity, info.capacity)
    if info.sequences > 1.0:
        capacity = min(capacity, int(SEQUENCES_AT_ONCE / info.sequences))
    factors = info.requirement.capacity_factor
    if factors:
        capacity = int(capacity * min(1.0, factors.get(device_class, 1.0)))
    return capacity if capacity > 1 else 1


def lane_limit(requirement: Requirement, capacity: int, device_class: str) -> int:
    """Actions that a lane may hold: one capacity ahead, none where memory bounds the load.

    The engine would run what is held ahead of a load that was cut after running out of memory.
    """
    factors = requirement.capacity_factor
    bounded = bool(factors) and factors.get(device_class, 1.0) < 1.0
    return capacity if bounded else 2 * capacity


def open_accounts(workers: Sequence[WorkerView]) -> list[WorkerCapacity]:
    """One account a worker, in the snapshot's order."""
    return [WorkerCapacity(i, worker) for i, worker in enumerate(workers)]
