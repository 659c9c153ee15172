"""The state of one scheduling cycle: indexes of the snapshot, predictions, remaining capacity.

``decide`` and ``explain`` create it for one snapshot and then discard it. It computes once what all
groups of a cycle share.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection
from typing import TYPE_CHECKING

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.costmodel import CostKey, CostModel, Rate
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import Snapshot, Tier
from flowmesh_core.fleet.worker_bounds import WorkerBounds
from flowmesh_core.placement.action_groups import ActionGroup, is_urgent
from flowmesh_core.placement.capacity import (
    EvenShares,
    InstanceCapacity,
    WorkerCapacity,
    even_share,
    open_accounts,
)
from flowmesh_core.placement.constraints import unmet_in_pool
from flowmesh_core.placement.input_locality import InputLocality
from flowmesh_core.placement.settings import SPREAD_GAIN
from flowmesh_core.protocol.messages import WorkerShape

if TYPE_CHECKING:
    from flowmesh_core.units import Digest


class SchedulingCycle:
    """Indexes of a snapshot, cached predictions, and the mutable capacity of its workers.

    Attributes:
        accounts: the capacity of each worker, in the snapshot's order.
        holders: which workers have inputs of ready actions.
        shapes: the distinct shapes. ``kinds`` lists, for each shape, its workers that are not
            draining. ``kind_of`` gives, for each worker, the index of its shape.
        workers_with_instance: signature → workers that have an engine instance of it.
        ready_by_signature: signature → number of ready actions that could share an instance.
        virtual_time: tenant → dollars paid over weight, including placements of this cycle.
        running: signatures with an instance that has actions, on the snapshot or from this cycle.
        busy: per worker, the number of instances that have actions on the snapshot. ``crowded``
            gives the slowdown of an action in one of these instances, and in an additional one.
        bounds: the workers that namespaces with a limit on workers use and may use.
        unspread: signatures whose actions are not spread over instances.
        waiting: signature → number of actions left unplaced because waiting for an instance is
            better.
    """

    def __init__(self, snapshot: Snapshot, model: CostModel) -> None:
        self.snapshot = snapshot
        self.model = model
        self._even_shares: dict[Digest, EvenShares] = {}
        self.accounts = open_accounts(snapshot.workers, self._even_shares)
        self.holders = InputLocality(snapshot)
        self.shapes: list[WorkerShape] = []
        self.kinds: list[list[int]] = []
        self.kind_of: list[int] = []
        self.workers_with_instance: dict[str, set[int]] = {}
        self.ready_by_signature = snapshot.ready.signatures
        self.running: set[str] = set()
        self.busy: list[int] = []
        self.crowded: list[tuple[float, float]] = []
        self.unspread: set[str] = set()
        self.waiting = defaultdict[str, int](int)
        self.virtual_time = dict(snapshot.fair_share)
        self.bounds = WorkerBounds(snapshot.worker_uses)
        self._free_calls = {tenant: calls.free for tenant, calls in snapshot.code_calls.items()}
        self._index()
        self._free_mib = [
            sorted(snapshot.workers[index].free_memory_mib for index in members)
            for members in self.kinds
        ]
        self._unmet: dict[tuple[str, int, frozenset[str]], tuple[RejectionCause | None, ...]] = {}
        self._rates: dict[tuple[object, ...], Rate] = {}
        self._loads: dict[tuple[object, ...], float] = {}

    def _index(self) -> None:
        numbers: dict[tuple[object, ...], int] = {}
        for index, worker in enumerate(self.snapshot.workers):
            key = (
                *_shape_key(worker.shape, self.snapshot.reserved_pools),
                self.model.fetches.slowdown(worker.shape.pool),
            )
            kind = numbers.setdefault(key, len(self.shapes))
            if kind == len(self.shapes):
                self.shapes.append(worker.shape)
                self.kinds.append([])
            self.kind_of.append(kind)
            busy = [s for s, instance in worker.instances.items() if instance.assigned]
            self.busy.append(len(busy))
            shape = worker.shape
            self.crowded.append((slowdown(shape, len(busy)), slowdown(shape, len(busy) + 1)))
            self.running.update(busy)
            if not worker.draining:
                self.kinds[kind].append(index)
                for signature in worker.instances:
                    self.workers_with_instance.setdefault(signature, set()).add(index)

    def unmet(self, group: ActionGroup) -> tuple[RejectionCause | None, ...]:
        """Returns the first hard constraint that each shape does not meet, or None."""
        requirement = group.info.requirement
        key = (group.info.signature, requirement.min_trust, group.reserved_pools)
        found = self._unmet.get(key)
        if found is None:
            reserved = self.snapshot.reserved_pools
            found = self._unmet[key] = tuple(
                unmet_in_pool(requirement, shape, reserved, group.reserved_pools)
                for shape in self.shapes
            )
        return found

    def may_call(self, group: ActionGroup) -> bool:
        """Whether the tenant's quota allows one more call of the group's user code."""
        return self._free_calls.get(group.code_tenant, 1) > 0

    def admits(self, group: ActionGroup, member: int) -> bool:
        """Whether the tenants of a group may use a worker: see ``ActionGroup.bound``."""
        account, tenants = self.accounts[member], group.bounded_tenants
        if not account.admits(group.code_tenant):
            return False
        return not tenants or self.bounds.admits(tenants, account.view.name, group.restrictions)

    def worker_quota_text(self, group: ActionGroup) -> str:
        """Returns the reason for users if a group waits because of its tenants' limit on workers.

        Empty if the limit is not reached, or if it closes no worker that could run the group.
        """
        tenants, kind = group.bounded_tenants, group.restrictions
        if not self.bounds.reached(tenants, kind):
            return ""
        able = (
            self.bounds.admits(tenants, self.accounts[member].view.name, kind)
            for cause, members in zip(self.unmet(group), self.kinds, strict=True)
            for member in (members if cause is None else ())
        )
        return "" if all(able) else self.bounds.text(tenants, kind)

    def able(self, group: ActionGroup) -> int:
        """Returns how many workers meet a group's hard constraints and are not draining."""
        kinds = zip(self.unmet(group), self.kinds, strict=True)
        return sum([len(members) for cause, members in kinds if cause is None])

    def rate(self, group: ActionGroup, device_class: str, batch: float) -> Rate:
        """Returns the predicted run time as a function of the work; results are cached."""
        size = group.work.component_bytes
        key = (group.info.signature, device_class, size, batch)
        found = self._rates.get(key)
        if found is None:
            found = self.model.rate(CostKey.of(group.info), device_class, size, batch)
            self._rates[key] = found
        return found

    def load_s(self, group: ActionGroup, member: int) -> float:
        """Returns the seconds to load a new engine instance on a worker, including fetches."""
        info = group.info
        view = self.accounts[member].view
        digests = [digest for digest, _ in info.components]
        tiers = tuple(self.holders.tiers(digests, member))
        pool = view.shape.pool
        key = (info.signature, view.shape.device_class, pool, group.work.component_bytes, tiers)
        found = self._loads.get(key)
        if found is None:
            far = 0
            for (_, size), tier in zip(info.components, tiers, strict=True):
                # Workers read only from the store, so a copy in the same zone saves no time.
                far += size if tier in {None, Tier.ZONE, Tier.FAR} else 0
            found = self.model.fetch_s(far, pool) + self.model.load_s(
                CostKey.of(info), view.shape.device_class, group.work.component_bytes
            )
            self._loads[key] = found
        return found

    def open_s(self, group: ActionGroup, member: int) -> float:
        """Returns the seconds to load an engine instance, or to wake it if it is asleep."""
        info, view = group.info, self.accounts[member].view
        if group.isolate or info.signature not in view.asleep:
            return self.load_s(group, member)
        size = group.work.component_bytes
        return self.model.wake_s(CostKey.of(info), view.shape.device_class, size)

    def spread(self, group: ActionGroup) -> None:
        """Computes the even shares of a group's signature, once a cycle.

        Must be called before the signature's slots are looked at. Workers on which only some groups
        may run count for all. Suspects are not spread, because they are halved host by host.
        """
        info = group.info
        skipped = info.suspects_of or info.signature in self.unspread
        if skipped or info.signature in self._even_shares:
            return
        needed_mib = info.requirement.memory_mib
        fitting, device_class = 0, ""
        for kind, cause in enumerate(self.unmet(group)):
            if cause is None:
                free_mib = self._free_mib[kind]
                fitting += len(free_mib) - bisect_left(free_mib, needed_mib)
                device_class = device_class or self.shapes[kind].device_class
        assigned = []
        for member in self.workers_with_instance.get(info.signature, ()):
            view = self.snapshot.workers[member]
            fitting -= view.free_memory_mib >= needed_mib
            if not view.instances[info.signature].isolated:
                assigned.append(view.instances[info.signature].assigned)
        ready = self.ready_by_signature[info.signature]
        of_new = even_share(ready, assigned, max(0, fitting))
        if device_class:
            of_new = self._worthwhile(group, device_class, of_new, min(ready, info.capacity))
        self._even_shares[info.signature] = EvenShares(even_share(ready, assigned), of_new)

    def _worthwhile(self, group: ActionGroup, device_class: str, share: int, most: int) -> int:
        """Returns a share, at least ``share``, with which an action takes hardly longer.

        A new instance takes time to load and memory that a large engine may need.
        """
        least_s = self.rate(group, device_class, float(share)).seconds(group.work)
        while share < most:
            larger = min(2 * share, most)
            longer_s = self.rate(group, device_class, float(larger)).seconds(group.work)
            if longer_s > SPREAD_GAIN * least_s:
                break
            share = larger
        return share

    def instance_for(self, group: ActionGroup, account: WorkerCapacity) -> InstanceCapacity | None:
        """Returns a worker's engine instance for a group, or None if it has none.

        The first call in a cycle lowers the instance's limit, so that its actions can still meet
        their tightest deadline.
        """
        known = group.info.signature in account.instances
        instance = account.instance(group.info)
        if not known and instance is not None and instance.view is not None and instance.assigned:
            due_s = instance.view.tightest_deadline_s - self.snapshot.now_s
            remaining_s = instance.view.remaining_s
            if remaining_s <= due_s < float("inf"):
                one_s, more_s = self._growth(group, account, instance)
                now_s = one_s + more_s * instance.assigned
                instance.guard((due_s / max(remaining_s, 1e-9) * now_s - one_s) / more_s)
        return instance

    def take(self, group: ActionGroup, action: ReadyAction, member: int) -> None:
        """Takes the next slot on a worker for an action."""
        account = self.accounts[member]
        account.take(group.info, alone=group.isolate)
        account.bind(group.code_tenant)
        if group.code_tenant in self._free_calls:
            self._free_calls[group.code_tenant] -= 1
        if group.bounded_tenants and self.bounds.take(group.bounded_tenants, account.view.name):
            for other in self.accounts:  # the tenant can no longer use their slots
                other.changed()
        self.running.add(group.info.signature)
        if is_urgent(action):
            self._guard(group, member, action.deadline_s)
            account.changed()

    def _guard(self, group: ActionGroup, member: int, deadline_s: float) -> None:
        """Lowers an instance's limit so that later actions do not delay the one just placed."""
        account = self.accounts[member]
        instance = account.instances[group.info.signature]
        start_s = instance.view.load_remaining_s if instance.view else self.open_s(group, member)
        one_s, more_s = self._growth(group, account, instance)
        spare_s = deadline_s - self.snapshot.now_s - start_s - one_s
        if spare_s >= more_s * instance.assigned:
            instance.guard(spare_s / more_s)

    def _growth(
        self, group: ActionGroup, account: WorkerCapacity, instance: InstanceCapacity
    ) -> tuple[float, float]:
        """Returns an action's run time as two parts: constant, and per action in the instance."""
        device_class = account.view.shape.device_class
        full = max(2.0, float(instance.capacity))
        alone_s = self.rate(group, device_class, 1.0).seconds(group.work)
        full_s = self.rate(group, device_class, full).seconds(group.work)
        more_s = max(1e-9, (full_s - alone_s) / (full - 1.0))
        return alone_s - more_s, more_s


def slowdown(shape: WorkerShape, instances: float) -> float:
    """Returns the factor by which actions slow down when ``instances`` share devices or cores."""
    at_once = shape.cpus if shape.device_class == "cpu" else shape.devices
    return max(1.0, instances / max(1, at_once))


def _shape_key(shape: WorkerShape, reserved: Collection[str]) -> tuple[object, ...]:
    """Returns the fields that constraints, prices and predictions read; the pool if reserved."""
    return (
        shape.device_class,
        shape.devices,
        shape.device_memory_mib,
        shape.price_nanousd_per_hour,
        shape.cpus,
        shape.allows_user_code,
        shape.sandbox,
        shape.sandbox_minimum,
        shape.single_tenant,
        shape.trust,
        shape.spot,
        shape.builtin_models,
        shape.variants,
        tuple(sorted(shape.engines.items())),
        tuple(sorted(shape.labels.items())) if shape.labels else (),
        shape.pool if shape.pool in reserved else "",
    )
