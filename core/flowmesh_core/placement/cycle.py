"""What is computed once for all groups of a tick, and the accounts of what it gives away."""

from collections import defaultdict

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.costmodel import CostKey, CostModel, Rate
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import SignatureInfo, Snapshot, Tier, WorkerView
from flowmesh_core.placement.action_groups import ActionGroup, is_urgent
from flowmesh_core.placement.capacity import InstanceCapacity, WorkerCapacity, open_accounts
from flowmesh_core.placement.constraints import unmet
from flowmesh_core.placement.input_locality import InputLocality
from flowmesh_core.protocol.messages import WorkerShape


class SchedulingCycle:
    """Indexes of a snapshot, memory of predictions, and the mutable accounts.

    Attributes:
        accounts: one a worker, in the snapshot's order.
        holders: of inputs.
        shapes: distinct shapes; ``kinds`` gives for each the workers that are not draining, and
            ``kind_of`` for each worker its number among them.
        lanes: signature → workers with a lane of it.
        ready_by_signature: actions that are there to share a lane.
        virtual_time: tenant → paid dollars over weight, what the tick has placed included.
        running: signatures of which some lane holds work, by the snapshot or by this tick.
        busy: lanes that hold work on the snapshot, for every worker; ``crowded`` says how many
            times as long an action takes in one of them, and in one more.
        waiting: signature → actions left unplaced because waiting for a lane is better.
    """

    def __init__(self, snapshot: Snapshot, model: CostModel) -> None:
        """Indexes the workers of the snapshot."""
        self.snapshot = snapshot
        self.model = model
        self.accounts = open_accounts(snapshot.workers)
        self.holders = InputLocality(snapshot)
        self.shapes: list[WorkerShape] = []
        self.kinds: list[list[int]] = []
        self.kind_of: list[int] = []
        self.lanes: dict[str, set[int]] = {}
        self.ready_by_signature = snapshot.ready.signatures
        self.running: set[str] = set()
        self.busy: list[int] = []
        self.crowded: list[tuple[float, float]] = []
        self.waiting = defaultdict[str, int](int)
        self.virtual_time = dict(snapshot.fair_share)
        self._index()
        self._unmet: dict[str, tuple[RejectionCause | None, ...]] = {}
        self._rates: dict[tuple[object, ...], Rate] = {}
        self._loads: dict[tuple[object, ...], float] = {}

    def _index(self) -> None:
        numbers: dict[tuple[object, ...], int] = {}
        for index, worker in enumerate(self.snapshot.workers):
            kind = numbers.setdefault(_shape_key(worker.shape), len(self.shapes))
            if kind == len(self.shapes):
                self.shapes.append(worker.shape)
                self.kinds.append([])
            self.kind_of.append(kind)
            busy = [s for s, lane in worker.lanes.items() if lane.held]
            self.busy.append(len(busy))
            self.crowded.append((_slowdown(worker, len(busy)), _slowdown(worker, len(busy) + 1)))
            self.running.update(busy)
            if not worker.draining:
                self.kinds[kind].append(index)
                for signature in worker.lanes:
                    self.lanes.setdefault(signature, set()).add(index)

    def unmet(self, info: SignatureInfo) -> tuple[RejectionCause | None, ...]:
        """For every kind of worker, the first hard constraint that it does not meet, or None."""
        found = self._unmet.get(info.signature)
        if found is None:
            found = tuple(unmet(info.requirement, shape) for shape in self.shapes)
            self._unmet[info.signature] = found
        return found

    def able(self, info: SignatureInfo) -> int:
        """How many workers meet the hard constraints and are not draining."""
        kinds = zip(self.unmet(info), self.kinds, strict=True)
        return sum([len(members) for cause, members in kinds if cause is None])

    def rate(self, group: ActionGroup, device_class: str, batch: float) -> Rate:
        """The model's prediction as a function of the work, asked once for each combination."""
        size = group.work.component_bytes
        key = (group.info.signature, device_class, size, batch)
        found = self._rates.get(key)
        if found is None:
            found = self.model.rate(CostKey.of(group.info), device_class, size, batch)
            self._rates[key] = found
        return found

    def load_s(self, group: ActionGroup, member: int) -> float:
        """Seconds until a lane that is opened on a worker would take work, fetching included."""
        info = group.info
        view = self.accounts[member].view
        tiers = tuple(view.near.get(digest) for digest, _ in info.components)
        key = (info.signature, view.shape.device_class, group.work.component_bytes, tiers)
        found = self._loads.get(key)
        if found is None:
            far = zone = 0
            for (_, size), tier in zip(info.components, tiers, strict=True):
                far += size if tier in {None, Tier.FAR} else 0
                zone += size if tier is Tier.ZONE else 0
            found = self.model.fetch_s(far, zone) + self.model.load_s(
                CostKey.of(info), view.shape.device_class, group.work.component_bytes
            )
            self._loads[key] = found
        return found

    def lane(self, group: ActionGroup, account: WorkerCapacity) -> InstanceCapacity | None:
        """The lane for a group, filled no further than the tightest deadline inside it allows."""
        known = group.info.signature in account.lanes
        lane = account.lane(group.info)
        if not known and lane is not None and lane.view is not None and lane.held:
            due_s = lane.view.tightest_deadline_s - self.snapshot.now_s
            left_s = lane.view.remaining_s
            if left_s <= due_s < float("inf"):
                one_s, more_s = self._growth(group, account, lane)
                now_s = one_s + more_s * lane.held
                lane.guard((due_s / max(left_s, 1e-9) * now_s - one_s) / more_s)
        return lane

    def take(self, group: ActionGroup, action: ReadyAction, member: int) -> None:
        """Gives an action the next place on a worker."""
        account = self.accounts[member]
        account.take(group.info, alone=group.isolate)
        self.running.add(group.info.signature)
        if is_urgent(action):
            self._guard(group, member, action.deadline_s)
            account.changed()

    def _guard(self, group: ActionGroup, member: int, deadline_s: float) -> None:
        """Keeps the tick from filling a lane so far that the action just placed would be late."""
        account = self.accounts[member]
        lane = account.lanes[group.info.signature]
        start_s = lane.view.load_remaining_s if lane.view else self.load_s(group, member)
        one_s, more_s = self._growth(group, account, lane)
        spare_s = deadline_s - self.snapshot.now_s - start_s - one_s
        if spare_s >= more_s * lane.held:
            lane.guard(spare_s / more_s)

    def _growth(
        self, group: ActionGroup, account: WorkerCapacity, lane: InstanceCapacity
    ) -> tuple[float, float]:
        """An action's seconds in this lane as a constant and a part per action in the batch."""
        device_class = account.view.shape.device_class
        full = max(2.0, float(lane.capacity))
        alone_s = self.rate(group, device_class, 1.0).seconds(group.work)
        full_s = self.rate(group, device_class, full).seconds(group.work)
        more_s = max(1e-9, (full_s - alone_s) / (full - 1.0))
        return alone_s - more_s, more_s


def _slowdown(worker: WorkerView, lanes: int) -> float:
    """How many times as long an action takes where so many lanes share the devices or the cores."""
    shape = worker.shape
    at_once = shape.cpus if shape.device_class == "cpu" else shape.devices
    return max(1.0, lanes / max(1, at_once))


def _shape_key(shape: WorkerShape) -> tuple[object, ...]:
    """All that constraints, prices and predictions read; neither the name nor the pool."""
    return (
        shape.device_class,
        shape.devices,
        shape.device_memory_mib,
        shape.price_nanousd_per_hour,
        shape.cpus,
        shape.allows_user_code,
        shape.builtin_models,
        shape.honours,
        tuple(sorted(shape.engines.items())),
        tuple(sorted(shape.labels.items())) if shape.labels else (),
    )
