"""Turns recorded runs into load: each action becomes a step with its dependencies and duration.

A step of a row-wise engine becomes one step for each chunk, so that chunks stream as recorded.
Equal actions of the recording stay equal; an action that was a cache hit and that no recorded run
executed takes no time.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from flowmesh_api.v1.enums import Phase
from flowmesh_api.v1.trace import AttemptRecord, EngineRecord, PartRecord, RecordedRun, StepRecord
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import EngineContract, Param, ParamType, Port, PortKind
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.graph.plan import (
    ArtifactSource,
    Cache,
    Edge,
    Plan,
    Resources,
    Source,
    StepPlan,
    StepSource,
    UtilityWeights,
)
from flowmesh_core.identity.canonical import canonical_bytes
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.machine.step_results import metrics_artifact
from flowmesh_core.protocol.messages import Assignment
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest
from flowmesh_sim.models.content import SimContents
from flowmesh_sim.models.devices import Device, HardwareCatalog
from flowmesh_sim.models.work_model import HOST, WorkItem, WorkModel
from flowmesh_sim.replay.recorded_pace import MADE, DurationFit, RecordedDurations, batches_of
from flowmesh_sim.replay.recording import Recording

PROMPT_BYTES = 32
"""Bytes of input per prompt token in the shipped estimate (``run.estimate``)."""
_DONE: dict[str, object] = {}


@dataclass(frozen=True, slots=True)
class RecordedAction:
    """An action that a recorded run executed.

    Attributes:
        batch: the mean number of actions in its engine instance, itself included.
    """

    step: StepRecord
    attempt: AttemptRecord
    batch: float


class RecordedWork:
    """All actions of a recording.

    Attributes:
        made: the executed actions by name.
        unknown: the number of parts that no recorded run executed.
    """

    def __init__(self, recording: Recording) -> None:
        """Collects the executed actions."""
        self.runs = recording.runs
        self.engines = {e.name: e for r in recording.runs for e in r.engines}
        attempts = [a for r in self.runs for a in r.attempts if a.outcome in MADE and a.signature]
        batches = batches_of(attempts)
        self.made: dict[str, RecordedAction] = {}
        for run in self.runs:
            steps = {s.step: s for s in run.steps}
            for a in run.attempts:
                if a.outcome in MADE and a.signature:
                    self.made[a.action] = RecordedAction(steps[a.step], a, batches[a.attempt])
        self.unknown = 0
        self._by_run = {r.run: _by_step(r) for r in self.runs}

    def attempts(self) -> Iterator[tuple[str, AttemptRecord]]:
        """Yields every attempt with a result, with its engine."""
        return ((m.step.engine, m.attempt) for m in self.made.values())

    def contracts(self) -> list[EngineContract]:
        """Returns the contracts that represent the recorded engines."""
        return [_contract(e) for e in self.engines.values()]

    def plan(self, run: RecordedRun, *, share: bool) -> tuple[Plan, dict[str, Artifact]]:
        """Returns a run's plan, and the artifacts that it references.

        Args:
            run: the recorded run.
            share: whether equal actions of several runs may be executed once.

        Raises:
            FlowMeshError: no action of the run is known.
        """
        artifacts: dict[str, Artifact] = {}
        steps: list[StepPlan] = []
        paths: dict[str, dict[int, str]] = {}
        for step in run.steps:
            own = {p.chunk: p for p in self._parts(run, step)}
            paths[step.step] = {chunk: f"{step.step}#{chunk}" for chunk in own}
            for part in own.values():
                after = [
                    path
                    for one in step.after
                    for path in _dependencies(
                        paths.get(one.step, {}), part.chunk, one.rows, len(own)
                    )
                ]
                steps.append(self._step(step, part, after, artifacts, share=share))
        last: dict[str, tuple[Source, ...]] = {}
        if steps:
            last["metrics"] = (StepSource(steps[-1].path, "metrics"),)
        plan = Plan(
            run.run,
            run.tenant,
            tuple(steps),
            last,
            weights=UtilityWeights(run.weights.alpha, run.weights.beta, run.weights.gamma),
            priority=run.priority,
            budget_nanousd=run.budget_nanousd,
            deadline_s=run.deadline_s,
        )
        return plan, artifacts

    def _parts(self, run: RecordedRun, step: StepRecord) -> list[PartRecord]:
        """Returns the parts of a step; for a cache hit, the parts of the run that produced it."""
        found: list[PartRecord] = []
        for part in self._by_run[run.run].get(step.step, []):
            if part.action in self.made:
                found.append(part)
                continue
            others = self._by_run.get(part.producer, {}).get(step.step, [])
            known = [p for p in others if p.action in self.made]
            found += known
            self.unknown += not known
        return found

    def _step(
        self,
        step: StepRecord,
        part: PartRecord,
        after: list[str],
        artifacts: dict[str, Artifact],
        *,
        share: bool,
    ) -> StepPlan:
        executed = self.made[part.action]
        a, engine = executed.attempt, self.engines[executed.step.engine]
        edges = [
            Edge(f"after{n}", PortKind.METRICS, (StepSource(path, "metrics"),), required=True)
            for n, path in enumerate(after)
        ]
        if engine.work_unit == "tokens":
            size = PROMPT_BYTES * a.tokens_in
            edges.append(_given("work", _stand_in(PortKind.BLOB, part.action, size), artifacts))
        elif engine.work_unit == "rows" and a.units:
            work = _stand_in(PortKind.BLOB, part.action, 0, rows=a.units)
            edges.append(_given("work", work, artifacts))
        if a.component_bytes:
            weights = _stand_in(PortKind.MODEL, a.signature, a.component_bytes)
            edges.append(_given("weights", weights, artifacts))
        return StepPlan(
            path=f"{step.step}#{part.chunk}",
            name=step.step,
            engine=engine.name,
            contract=engine.contract,
            implementation=engine.implementation,
            params={
                "action": part.action,
                "signature": a.signature,
                "maxTokens": a.tokens_out,
            },
            fields={},
            edges=tuple(edges),
            resources=Resources(memory_mib=a.memory_mib, tensor_parallel=step.tensor_parallel),
            cache=Cache(reuse="always" if share else "run"),
        )


class RecordedWorkModel(WorkModel):
    """Recorded actions take the time of :class:`RecordedDurations` and have no outputs."""

    def __init__(
        self,
        hardware: HardwareCatalog,
        contents: SimContents,
        catalog: Catalog,
        *,
        work: RecordedWork,
        paces: RecordedDurations,
        predict: bool,
    ) -> None:
        """Creates the model; ``predict`` uses predictions instead of the recorded times."""
        super().__init__(hardware, contents, catalog)
        self.work = work
        self.paces = paces
        self.predict = predict

    def of(self, a: Assignment, device: Device) -> WorkItem:
        """As :meth:`WorkModel.of`."""
        executed = self.work.made[a.params["action"]]
        pace = self._pace(executed, device.device_class)
        r = executed.attempt
        return WorkItem(
            HOST,
            steps=pace.alone_s,
            beside=pace.beside,
            units=max(1, r.units),
            tokens_in=r.tokens_in,
            tokens_out=r.tokens_out,
        )

    def _pace(self, executed: RecordedAction, device_class: str) -> DurationFit:
        engine = executed.step.engine
        if self.predict:
            return self.paces.predicted(engine, executed.attempt, device_class)
        return self.paces.recorded(engine, executed.attempt, device_class, executed.batch)

    @property
    def process_s(self) -> float:
        """As :meth:`WorkModel.process_s`; 0, since recorded load times include it."""
        return 0.0

    def start_s(self, a: Assignment, device: Device) -> tuple[float, float]:
        """As :meth:`WorkModel.start_s`: the recorded load time, or the predicted one."""
        executed = self.work.made[a.params["action"]]
        return 0.0, self.paces.load_s(executed.step.engine, executed.attempt, device.device_class)

    def outputs(
        self, a: Assignment, duty: WorkItem
    ) -> tuple[dict[str, Artifact], dict[Digest, bytes]]:
        """Returns the same output for all actions: only their ends matter."""
        artifact = metrics_artifact(_DONE)
        return {"metrics": artifact}, {artifact.blob: canonical_bytes(_DONE)}


def _by_step(run: RecordedRun) -> dict[str, list[PartRecord]]:
    found: dict[str, list[PartRecord]] = {}
    for part in run.parts:
        found.setdefault(part.step, []).append(part)
    return found


def _dependencies(paths: dict[int, str], chunk: int, rows: bool, chunks: int) -> list[str]:
    """Returns the parts of a parent on which a part depends."""
    if rows and chunks > 1 and len(paths) == chunks and chunk in paths:
        return [paths[chunk]]
    return list(paths.values())


def _contract(engine: EngineRecord) -> EngineContract:
    return EngineContract(
        name=engine.name,
        version=engine.contract,
        implementation=engine.implementation,
        inputs=(
            Port("*", PortKind.METRICS, required=False),
            Port("work", PortKind.BLOB, required=False),
            Port("weights", PortKind.MODEL, required=False, component=True),
        ),
        outputs=(Port("metrics", PortKind.METRICS),),
        params=(
            Param("action", ParamType.STRING),
            Param("signature", ParamType.STRING, batch_wide=True),
            Param("maxTokens", ParamType.INTEGER),
        ),
        work_unit=engine.work_unit,
        needs_gpu_class="accelerator" if engine.accelerator else "host",
        capacity=engine.capacity,
        base_memory_mib=engine.memory_mib,
    )


def _stand_in(kind: str, name: str, size_bytes: int, rows: int = 0) -> Artifact:
    digest = digest_bytes(f"recorded {kind} {name}".encode())
    return Artifact(kind, digest, digest, size_bytes, rows)


def _given(port: str, artifact: Artifact, artifacts: dict[str, Artifact]) -> Edge:
    reference = f"cas:{artifact.digest}"
    artifacts[reference] = artifact
    return Edge(port, artifact.kind, (ArtifactSource(artifact.kind, reference),), required=True)


def require_known(work: RecordedWork) -> None:
    """Refuses a recording without an executed action.

    Raises:
        FlowMeshError: says of its runs why they cannot be replayed.
    """
    if not work.made:
        reasons = dict.fromkeys(map(why_left_out, work.runs))
        raise FlowMeshError(
            f"no run in it can be replayed: {'; '.join(reasons)}",
            where="trace",
            remedy="trace runs of this release in which an attempt had a result",
        )


def why_left_out(run: RecordedRun) -> str:
    """Returns why nothing of a run can be replayed, where no action of it is known."""
    if any(a.outcome in MADE for a in run.attempts):
        return "none of its attempts has a worker, as an older release recorded it"
    if run.parts and all(part.hit for part in run.parts):
        return "it had only cache hits"
    if run.phase == Phase.SUCCEEDED:
        return "it succeeded without an action"
    ended = "was cancelled" if run.phase == Phase.CANCELLED else "failed"
    missing = "a result" if any(a.worker for a in run.attempts) else "a worker"
    return f"it {ended} before any attempt had {missing}"
