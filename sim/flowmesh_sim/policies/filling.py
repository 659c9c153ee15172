"""Tracks free capacity while a baseline builds its decision."""

from collections.abc import Iterator

from flowmesh_api.v1.why import UtilityTerms
from flowmesh_core.costmodel import CostKey, CostModel
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import Decision, Placement, Snapshot
from flowmesh_core.machine.state import State
from flowmesh_core.placement.capacity import WAIT, WorkerCapacity, open_accounts
from flowmesh_core.placement.constraints import unmet
from flowmesh_core.units import Digest

ON_DEVICE = ("llm.", "train.")
"""Engines whose actions need a device; the others do light work on a worker's CPU."""


class CapacityTracker:
    """Collects placements one by one, with the shipped scheduler's rules for capacity and memory.

    Attributes:
        accounts: the workers that are not draining, in the snapshot's order.
        free: those of them with an idle device; changes with each placement.
    """

    def __init__(self, snapshot: Snapshot, model: CostModel, state: State) -> None:
        """Opens the accounts of a snapshot's workers."""
        self.snapshot = snapshot
        self._known = state.signatures
        self._model = model
        self.accounts = [a for a in open_accounts(snapshot.workers) if not a.view.draining]
        self._batches: dict[tuple[str, Digest], list[ReadyAction]] = {}
        self._able: dict[tuple[Digest, str], bool] = {}
        self.free = [a for a in self.accounts if not self.device_work(a)]

    def due(self) -> Iterator[ReadyAction]:
        """Yields the ready actions that are not in backoff, in order of readiness."""
        now_s = self.snapshot.now_s
        for action in sorted(self.snapshot.ready, key=lambda a: (a.ready_s, a.action_id)):
            if action.not_before_s <= now_s:
                yield action

    def able(self, account: WorkerCapacity, action: ReadyAction) -> bool:
        """Whether the worker meets the action's hard constraints."""
        if account.view.name == action.replica_of:
            return False
        shape = account.view.shape
        key = (action.signature, shape.name)
        found = self._able.get(key)
        if found is None:
            requirement = self.snapshot.signatures[action.signature].requirement
            found = self._able[key] = unmet(requirement, shape) is None
        return found

    def has_capacity(self, account: WorkerCapacity, action: ReadyAction) -> bool:
        """Whether a worker can run the action now, or queue it."""
        tier = account.place_tier(self.snapshot.signatures[action.signature], alone=action.isolate)
        return tier is not None and tier < WAIT

    def on_device(self, action: ReadyAction) -> bool:
        """Whether the action needs a device."""
        return self._needs_device(action.signature)

    def _needs_device(self, signature: Digest) -> bool:
        return self._known[signature].requirement.engine.startswith(ON_DEVICE)

    def device_work(self, account: WorkerCapacity) -> set[Digest]:
        """Returns the signatures whose actions the worker's device has, placed ones included."""
        before = {s for s, instance in account.view.instances.items() if instance.assigned}
        now = {s for s, instance in account.instances.items() if instance.assigned}
        return {signature for signature in before | now if self._needs_device(signature)}

    def place(self, account: WorkerCapacity, action: ReadyAction) -> None:
        """Places an action on a worker."""
        account.take(self.snapshot.signatures[action.signature], alone=action.isolate)
        if account in self.free and self.on_device(action):
            self.free.remove(account)
        self._batches.setdefault((account.view.name, action.signature), []).append(action)

    def place_first(self, action: ReadyAction) -> bool:
        """Places an action on the first worker that can run it, and returns whether one can."""
        for account in self.accounts:
            if self.able(account, action) and self.has_capacity(account, action):
                self.place(account, action)
                return True
        return False

    def decision(self) -> Decision:
        """Returns the placements; baselines give no rejections."""
        return Decision(
            tuple(self._placed(w, batch) for (w, _), batch in self._batches.items()), ()
        )

    def _placed(self, worker: str, batch: list[ReadyAction]) -> Placement:
        info = self.snapshot.signatures[batch[0].signature]
        shape = next(w.shape for w in self.snapshot.workers if w.name == worker)
        at_once = float(min(info.capacity, len(batch)))
        key = CostKey.of(info)
        predictions = [
            self._model.predict(key, shape.device_class, a.work, batch=at_once) for a in batch
        ]
        price = shape.price_nanousd_per_hour
        return Placement(
            worker=worker,
            signature=info.signature,
            actions=tuple(a.action_id for a in batch),
            terms=UtilityTerms(0.0, 0.0, 0.0, 0.0, 0.0, predictions[0].seconds, 0),
            predicted_s=tuple(p.seconds for p in predictions),
            reserve_nanousd=tuple(p.p95_nanousd(price) for p in predictions),
        )
