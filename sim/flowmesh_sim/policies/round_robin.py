"""The paper's DR baseline: steps of workflows go to the workers in turn."""

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.machine.state import State
from flowmesh_core.placement.capacity import WorkerCapacity
from flowmesh_sim.policies.filling import CapacityTracker


class RoundRobin:
    """Each step goes to the next worker that can run it and has an idle device.

    A worker's device runs one step at a time: consolidation is what distinguishes the paper's own
    system. Fair to the baseline: busy workers are skipped instead of queued at, a loaded engine is
    reused, and steps that need no device run at once.
    """

    def __init__(self) -> None:
        """Begins at the first worker."""
        self._last = ""

    def decide(self, snapshot: Snapshot, model: CostModel, state: State) -> Decision:
        """Places the ready steps in order of readiness."""
        filling = CapacityTracker(snapshot, model, state)
        for action in filling.due():
            account = self._next(filling, action)
            if account is not None:
                filling.place(account, action)
                self._last = account.view.name
        return filling.decision()

    def _next(self, filling: CapacityTracker, action: ReadyAction) -> WorkerCapacity | None:
        among = filling.free if filling.on_device(action) else filling.accounts
        after = [a for a in among if a.view.name > self._last]
        before = [a for a in among if a.view.name <= self._last]
        for account in (*after, *before):
            if filling.able(account, action) and filling.has_capacity(account, action):
                return account
        return None
