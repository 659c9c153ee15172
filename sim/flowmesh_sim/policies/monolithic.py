"""The paper's monolithic baseline: a workflow is one job on one worker, first fit."""

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.machine.model import Run, StepRun
from flowmesh_core.machine.state import State
from flowmesh_core.placement.capacity import WorkerCapacity
from flowmesh_core.units import Digest
from flowmesh_sim.policies.filling import CapacityTracker

MIB = 1 << 20


class Monolithic:
    """A workflow gets the first free worker that can run all its steps, until it ends.

    Nothing else runs on that worker meanwhile. Fair to the baseline: the memory of every step is
    known beforehand, so that a workflow never has to move; its steps run concurrently if they fit;
    an engine that the previous workflow loaded is reused; a workflow that does not fit does not
    block the others.

    Attributes:
        run_by_worker: worker → the run that occupies it.
    """

    def __init__(self) -> None:
        self.run_by_worker: dict[str, str] = {}

    def decide(self, snapshot: Snapshot, model: CostModel, state: State) -> Decision:
        """Frees the workers of ended runs, then places steps in order of readiness."""
        filling = CapacityTracker(snapshot, model, state)
        present = {account.view.name for account in filling.accounts}
        self.run_by_worker = {
            w: uid for w, uid in self.run_by_worker.items() if w in present and _goes_on(state, uid)
        }
        for action in filling.due():
            uid = _uid(state, action)
            if len(self.run_by_worker) == len(present) and uid not in self.run_by_worker.values():
                continue
            account = self._worker_of(filling, state.runs[uid])
            if account is None or not filling.able(account, action):
                continue
            if filling.has_capacity(account, action):
                filling.place(account, action)
        return filling.decision()

    def _worker_of(self, filling: CapacityTracker, run: Run) -> WorkerCapacity | None:
        """Returns the run's worker, or the first free one that can run all of its steps."""
        for account in filling.accounts:
            if self.run_by_worker.get(account.view.name) == run.uid:
                return account
        needs_mib = max(_memory_mib(run, step) for step in run.steps.values())
        for account in filling.accounts:
            name, shape = account.view.name, account.view.shape
            if name not in self.run_by_worker and shape.device_memory_mib >= needs_mib:
                self.run_by_worker[name] = run.uid
                return account
        return None


def _uid(state: State, action: ReadyAction) -> str:
    scope, _, action_id = action.action_id.partition("/")
    return state.actions[ActionKey(scope, Digest(action_id))].runs()[0]


def _goes_on(state: State, uid: str) -> bool:
    run = state.runs.get(uid)
    return run is not None and any(not step.ended for step in run.steps.values())


def _memory_mib(run: Run, step: StepRun) -> float:
    """Returns the memory that a step will request, before its inputs are known."""
    plan, contract = step.plan, step.contract
    if plan.resources.memory_mib:
        return float(plan.resources.memory_mib)
    size = 0
    for edge in plan.edges:
        port = contract.input_port(edge.port)
        if port is not None and port.component and not port.mixable:
            size += max((_bytes(run, source) for source in edge.sources), default=0)
    return contract.base_memory_mib + contract.component_memory_factor * size / MIB


def _bytes(run: Run, source: object) -> int:
    """Returns a model's size, or that of the run's largest model if it is not known yet."""
    known = run.artifacts.get(getattr(source, "reference", ""))
    if known is not None:
        return known.size_bytes
    return max((a.size_bytes for a in run.artifacts.values() if a.kind == "model"), default=0)
