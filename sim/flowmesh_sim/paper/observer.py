"""Records what the paper's tables need beyond a simulation's usual measurements."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowmesh_api.v1.runs import RunStatus
from flowmesh_core.errors import FailureKind
from flowmesh_core.graph.plan import StepSource
from flowmesh_core.machine.commands import Assign
from flowmesh_core.machine.events import ActionKey, Event, WorkerLost, WorkerSynced
from flowmesh_core.machine.model import Run
from flowmesh_core.machine.state import parse_attempt_id
from flowmesh_sim.control.fabric import EPOCH_S
from flowmesh_sim.invariants.checker import Checker

if TYPE_CHECKING:
    from flowmesh_core.protocol.messages import Assignment
    from flowmesh_sim.control.control import SimulatedControlPlane
    from flowmesh_sim.workers.worker import SimWorker


@dataclass(frozen=True, slots=True)
class StepTrace:
    """A step of an ended run, with its parents and actions."""

    path: str
    parents: tuple[str, ...]
    actions: tuple[ActionKey, ...]


@dataclass(frozen=True, slots=True)
class ShortOfMemory:
    """An attempt that ran out of memory.

    Attributes:
        took_s: from its start on the worker until the control plane got the report.
    """

    signature: str
    known_s: float
    took_s: float


class EvaluationObserver(Checker):
    """A checker of invariants that also records events.

    Attributes:
        first: the first assignment of every action.
        worker_runs: by worker, the uids of its runs in order, with times.
        traces: the steps of every ended run.
        lost: when workers were declared lost, by name; ``falsely`` is the number that still ran.
        short: attempts that ran out of memory.
        peak_workers: the maximum number of connected workers.
    """

    def __init__(self) -> None:
        """Checks the whole state every 1,000 events and at the end."""
        super().__init__(every=1000)
        self.workers: list[SimWorker] = []
        self.first: dict[ActionKey, Assignment] = {}
        self.worker_runs: dict[str, list[tuple[float, str]]] = {}
        self.traces: dict[str, list[StepTrace]] = {}
        self.lost: dict[str, float] = {}
        self.falsely = 0
        self.short: list[ShortOfMemory] = []
        self.peak_workers = 0
        self._signatures: dict[str, str] = {}
        self._seen: set[str] = set()

    def assigned(self, control: "SimulatedControlPlane", c: Assign) -> None:
        """Records the first assignment of every action."""
        super().assigned(control, c)
        a = c.assignment
        self.first.setdefault(parse_attempt_id(a.attempt_id), a)
        self._signatures[a.attempt_id] = a.signature
        now_s = control.now_s() - EPOCH_S
        self.worker_runs.setdefault(c.worker, []).extend((now_s, uid) for uid in a.run_uids)

    def applied(self, control: "SimulatedControlPlane", event: Event) -> None:
        """Records lost workers and out-of-memory failures when the control plane gets them."""
        super().applied(control, event)
        if type(event) is WorkerLost:
            self.lost[event.name] = control.now_s() - EPOCH_S
            self.falsely += any(w.name == event.name and not w.gone for w in self.workers)
        elif type(event) is WorkerSynced:
            self._shortages(control, event)
        self.peak_workers = max(self.peak_workers, len(control.machine.state.workers))

    def _shortages(self, control: "SimulatedControlPlane", event: WorkerSynced) -> None:
        for end in event.sync.ended:
            failure = end.failure
            if failure is None or failure.kind != FailureKind.OUT_OF_MEMORY:
                continue
            if end.attempt_id not in self._seen:
                self._seen.add(end.attempt_id)
                now_s = control.now_s()
                self.short.append(
                    ShortOfMemory(
                        signature=self._signatures.get(end.attempt_id, ""),
                        known_s=now_s - EPOCH_S,
                        took_s=now_s - end.started_s,
                    )
                )

    def finished(self, control: "SimulatedControlPlane", uid: str, status: RunStatus) -> None:
        """Records the run's graph before the machine removes it."""
        super().finished(control, uid, status)
        run = control.machine.state.runs.get(uid)
        if run is not None:
            self.traces[uid] = trace_of(run)


def trace_of(run: Run) -> list[StepTrace]:
    """Returns a run's steps, parents first; a step-level cache hit has no actions."""
    left = {path: _parents(run, path) for path in run.steps}
    found: list[StepTrace] = []
    while left:
        known = {t.path for t in found}
        ready = [path for path, parents in left.items() if known.issuperset(parents)]
        for path in ready:
            step = run.steps[path]
            parts = () if step.step_level else step.parts.values()
            keys = tuple(part.key for part in parts if part.key is not None)
            found.append(StepTrace(path, left.pop(path), keys))
    return found


def _parents(run: Run, path: str) -> tuple[str, ...]:
    edges = run.steps[path].plan.edges
    sources = [source for edge in edges for source in edge.sources]
    return tuple(dict.fromkeys(s.step for s in sources if isinstance(s, StepSource)))
