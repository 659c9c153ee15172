"""What the cost model predicts of an action on a worker; used by the orders of Halo and Helium."""

from typing import TYPE_CHECKING

from flowmesh_core.costmodel import CostKey, CostModel, Rate
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import Snapshot
from flowmesh_core.placement.capacity import WorkerCapacity

if TYPE_CHECKING:
    from flowmesh_core.units import Digest


class Predictions:
    """Predictions of one decision; equal ones are computed once."""

    def __init__(self, snapshot: Snapshot, model: CostModel) -> None:
        """Keeps the snapshot and the model."""
        self._snapshot = snapshot
        self._model = model
        self._rates: dict[tuple[Digest, str, int], Rate] = {}

    def load_s(self, account: WorkerCapacity, action: ReadyAction) -> float:
        """Returns the seconds until the action's engine takes work, fetches included."""
        info, view = self._snapshot.signatures[action.signature], account.view
        instance = view.instances.get(info.signature)
        if instance is not None:
            return instance.load_remaining_s
        far = sum(size for digest, size in info.components if digest not in view.local)
        kind, size = view.shape.device_class, action.work.component_bytes
        fetch_s = self._model.fetch_s(far, view.shape.pool)
        return self._model.load_s(CostKey.of(info), kind, size) + fetch_s

    def run_s(self, account: WorkerCapacity, action: ReadyAction, beside: int) -> float:
        """Returns the seconds that the action runs, as one of ``beside`` in its engine."""
        kind = account.view.shape.device_class
        key = (action.signature, kind, beside)
        rate = self._rates.get(key)
        if rate is None:
            cost_key = CostKey.of(self._snapshot.signatures[action.signature])
            size = action.work.component_bytes
            rate = self._rates[key] = self._model.rate(cost_key, kind, size, float(beside))
        return rate.seconds(action.work)
