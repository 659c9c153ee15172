"""The remaining capacity of workers and engine instances during one cycle.

``decide`` creates it from a snapshot and updates it with each placement. Capacity and memory are
taken only here, so a cycle cannot over-commit.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from flowmesh_core.fleet.ready import SEQUENCES_AT_ONCE
from flowmesh_core.fleet.snapshot import InstanceView, Requirement, SignatureInfo, WorkerView
from flowmesh_core.units import Digest

RUN, AHEAD, WAIT = 0, 1, 2
"""Tiers of an instance's slots. An action in tier ``RUN`` runs at once. One in ``AHEAD`` is placed
too, but is queued at the worker, or runs beside more actions than the instance gets if they are
spread evenly. One in ``WAIT`` is not placed and waits for the instance. Each tier beyond ``WAIT``
waits for one more filling of the instance. Those tiers serve only for predictions; nothing is
placed in them."""


class EvenShares(NamedTuple):
    """How many actions each instance of a signature has if the ready ones are spread evenly.

    Attributes:
        of_open: over the open instances.
        of_new: over these and one on each worker that has the memory for it.
    """

    of_open: int
    of_new: int


def even_share(ready: int, assigned: Iterable[int], empty: int = 0) -> int:
    """Returns how many actions the instances have that get any of the ready ones.

    Args:
        ready: the actions to spread, at least one.
        assigned: the number of actions that each instance has; those with more than their share
            get none.
        empty: the number of further instances, which have none.
    """
    number, total = empty, ready
    for count in sorted(assigned):
        if total <= number * count:
            break
        number += 1
        total += count
    return -(-total // number) if number else total


class InstanceCapacity:
    """An engine instance during a cycle.

    Attributes:
        capacity: the number of actions that it may run at once.
        even_share: the number of actions up to which its slots are in tier ``RUN``. It is one more
            than on the snapshot at least, but never above ``capacity``.
        limit: the number of actions that it may have: twice the capacity, or less if memory or a
            deadline requires it.
        assigned: the number of actions that it has, including those placed in this cycle.
        memory_mib: reserved while it has any action; 0 if a service's replica has reserved it.
        closed: whether it takes nothing more in this cycle.
    """

    __slots__ = ("assigned", "capacity", "closed", "even_share", "limit", "memory_mib", "view")

    def __init__(
        self,
        capacity: int,
        limit: int,
        memory_mib: int,
        view: InstanceView | None,
        shares: EvenShares | None = None,
    ) -> None:
        """Starts from the snapshot's view of the instance, or None if this cycle opens it."""
        self.capacity = capacity
        self.even_share = capacity
        if shares is not None:
            # Every open instance may take one more, if it is worth as much as one with fewer.
            share = max(shares.of_open, view.assigned + 1) if view else shares.of_new
            self.even_share = min(capacity, share)
        self.limit = limit
        self.assigned = view.assigned if view else 0
        self.memory_mib = memory_mib
        self.closed = view.isolated if view else False
        self.view = view

    def guard(self, at_once: float) -> None:
        """Lowers the limit, so that the batch stays small enough for the deadline of an action."""
        self.limit = max(self.assigned, min(self.limit, int(min(at_once, self.limit))))


class WorkerCapacity:
    """A worker during a cycle.

    Attributes:
        reserved: whether it is reserved for an action, together with ``claimed_mib`` of its free
            memory.
        suspected: whether an isolated action or a group of suspects runs here. A second one may not
            join it: if the worker were lost, both would be suspects, also the innocent one
            (ADR 18).
        code_tenant: the tenant whose user code a single-tenant worker runs; empty until it has one.
        even_shares: of the signatures for which the cycle has looked for slots.
    """

    __slots__ = (
        "_watchers",
        "claimed_mib",
        "code_tenant",
        "even_shares",
        "free_mib",
        "index",
        "instances",
        "reserved",
        "suspected",
        "view",
    )

    def __init__(
        self, index: int, view: WorkerView, even_shares: Mapping[Digest, EvenShares]
    ) -> None:
        self.index = index
        self.even_shares = even_shares
        self.view = view
        self.free_mib = view.free_memory_mib
        self.instances: dict[Digest, InstanceCapacity] = {}
        self._watchers: list[tuple[list[int], int]] = []
        self.reserved = False
        self.claimed_mib = 0
        self.suspected = any(i.isolated or i.suspects for i in view.instances.values())
        self.code_tenant = view.code_tenant

    def admits(self, code_tenant: str) -> bool:
        """Whether a tenant's user code may run here; an empty tenant means no user code."""
        if not (code_tenant and self.view.shape.single_tenant):
            return True
        return self.code_tenant in ("", code_tenant)

    def bind(self, code_tenant: str) -> None:
        """Gives a single-tenant worker to the first tenant whose user code is placed on it."""
        if code_tenant and self.view.shape.single_tenant and not self.code_tenant:
            self.code_tenant = code_tenant
            self.changed()

    def instance(self, info: SignatureInfo) -> InstanceCapacity | None:
        """Returns a signature's instance, from the snapshot or opened by this cycle, or None."""
        instance = self.instances.get(info.signature)
        if instance is None:
            view = self.view.instances.get(info.signature)
            if view is None:
                return None
            capacity = instance_capacity(info, view, self.view.shape.device_class)
            limit = instance_limit(info.requirement, capacity, self.view.shape.device_class)
            shares = self.even_shares.get(info.signature)
            instance = InstanceCapacity(capacity, limit, view.freed_mib, view, shares)
            self.instances[info.signature] = instance
        return instance

    def place_tier(self, info: SignatureInfo, *, alone: bool) -> int | None:
        """Returns the tier of a signature's next slot; None if there is none, even to wait for."""
        if self.suspected and (alone or (info.suspects_of and not self.runs(info))):
            return None
        instance = self.instances.get(info.signature)
        if instance is None and info.signature in self.view.instances:
            instance = self.instance(info)
        if instance is None:
            return RUN if info.requirement.memory_mib <= self.unclaimed_mib() else None
        count = instance.assigned
        if instance.closed or (alone and count):
            return None
        if not count and _host_mib(instance, info, alone=alone) > self.unclaimed_mib():
            return None
        if count < instance.limit:
            return RUN if count < instance.even_share else AHEAD
        return WAIT

    def runs(self, info: SignatureInfo) -> bool:
        """Whether an instance of a signature has actions here."""
        instance = self.instances.get(info.signature) or self.view.instances.get(info.signature)
        return instance is not None and instance.assigned > 0

    def unclaimed_mib(self) -> int:
        """Returns the free memory that is not set aside for a reservation."""
        return self.free_mib - self.claimed_mib

    def take(self, info: SignatureInfo, *, alone: bool) -> None:
        """Takes the next slot, and opens an instance if there is none."""
        instance = self.instances.get(info.signature) or self.instance(info)
        if instance is None:
            instance = self.new_instance(info)
            self.instances[info.signature] = instance
        if instance.assigned == 0:
            instance.memory_mib = _host_mib(instance, info, alone=alone)
            self.free_mib -= instance.memory_mib
            self.changed()
        instance.assigned += 1
        instance.closed = instance.closed or alone
        self.suspected = self.suspected or alone or bool(info.suspects_of)
        full = instance.assigned >= instance.limit
        if alone or full or instance.assigned == instance.even_share:
            self.changed()

    def watch(self, stale: list[int], number: int) -> None:
        """Appends ``number`` to ``stale``, once, when any signature's next slot may change."""
        self._watchers.append((stale, number))

    def changed(self) -> None:
        """Notifies the watchers that the next slots here may have changed."""
        for stale, number in self._watchers:
            stale.append(number)
        self._watchers.clear()

    def close(self, signature: Digest) -> None:
        """Closes an instance of the snapshot for the rest of this cycle."""
        instance = self.instances.get(signature)
        if instance is None:
            view = self.view.instances[signature]
            instance = InstanceCapacity(view.capacity, view.capacity, view.freed_mib, view)
            self.instances[signature] = instance
        instance.closed = True

    def give_back(self, info: SignatureInfo) -> None:
        """Frees a slot that this cycle took."""
        instance = self.instances[info.signature]
        instance.assigned -= 1
        if instance.assigned == 0:
            self.free_mib += instance.memory_mib
            if instance.view is None:
                del self.instances[info.signature]

    def new_instance(self, info: SignatureInfo) -> InstanceCapacity:
        """Returns the instance that this cycle would open here, without opening it."""
        device_class = self.view.shape.device_class
        capacity = instance_capacity(info, None, device_class)
        limit = instance_limit(info.requirement, capacity, device_class)
        shares = self.even_shares.get(info.signature)
        return InstanceCapacity(capacity, limit, info.requirement.memory_mib, None, shares)

    def idle(self) -> bool:
        """Whether the worker has no actions, neither on the snapshot nor placed in this cycle."""
        if any(view.assigned for view in self.view.instances.values()):
            return False
        return not any(instance.assigned for instance in self.instances.values())


def _host_mib(instance: InstanceCapacity, info: SignatureInfo, *, alone: bool) -> int:
    """Returns the memory that the next slot reserves. An isolated action always gets a new host."""
    return info.requirement.memory_mib if alone else instance.memory_mib


def instance_capacity(info: SignatureInfo, view: InstanceView | None, device_class: str) -> int:
    """Returns the number of actions that an instance may run at once.

    While the instance loads, its capacity is assumed to be at least that of the contract.
    """
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


def instance_limit(requirement: Requirement, capacity: int, device_class: str) -> int:
    """Returns the number of actions that an instance may have: those running and as many queued.

    Nothing is queued if the capacity was lowered after the engine ran out of memory, because the
    engine would run the queued actions beside the others.
    """
    factors = requirement.capacity_factor
    bounded = bool(factors) and factors.get(device_class, 1.0) < 1.0
    return capacity if bounded else 2 * capacity


def open_accounts(
    workers: Sequence[WorkerView],
    even_shares: Mapping[Digest, EvenShares] = MappingProxyType({}),
) -> list[WorkerCapacity]:
    """Returns the capacity of each worker, in the snapshot's order."""
    return [WorkerCapacity(i, worker, even_shares) for i, worker in enumerate(workers)]
