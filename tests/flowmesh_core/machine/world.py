"""A fabric in virtual time around the real machine and the real scheduler.

The outside is the simplest that is right: the action cache is a dict, workers end what they hold
when the test says so. Invariants are checked after every event.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from flowmesh_api.v1.runs import RunStatus
from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.catalog.builtin.importing import RESOLVE
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import Determinism, EngineContract, Port, PortKind, Reduction
from flowmesh_core.costmodel.model import CostModel
from flowmesh_core.dataset.manifest import ChunkRef, Manifest, dataset_digest, encode_manifest
from flowmesh_core.dataset.schema import Schema
from flowmesh_core.graph.conditions import verdict_of
from flowmesh_core.graph.plan import (
    ArtifactSource,
    Cache,
    Edge,
    Plan,
    Resources,
    Retry,
    StepPlan,
    StepSource,
)
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.machine import commands as c
from flowmesh_core.machine import events as e
from flowmesh_core.machine.machine import Machine
from flowmesh_core.machine.model import Run
from flowmesh_core.machine.settings import Settings
from flowmesh_core.placement.decide import decide
from flowmesh_core.protocol.messages import (
    Assignment,
    AttemptEnd,
    AttemptProgress,
    Checkpoint,
    FailureReport,
    Hello,
    PrewarmSpec,
    ServingReplicaState,
    Sync,
    WorkerShape,
)
from flowmesh_core.protocol.results import ActionResult, Artifact, Usage, content_artifact
from flowmesh_core.sharing.scopes import ScopePlan
from flowmesh_core.status.projection import run_status
from flowmesh_core.units import Digest

PRICE = 3_600_000_000  # $3.60 an hour: a micro-dollar a millisecond

METRICS = Port("metrics", PortKind.METRICS)
NOOP = EngineContract(
    "test.noop", 1, 1, (Port("*", PortKind.METRICS, required=False),), (METRICS,), capacity=4
)
SOLO = EngineContract("test.solo", 1, 1, NOOP.inputs, (METRICS,), capacity=1)
MANY = EngineContract("test.many", 1, 1, NOOP.inputs, (METRICS,), capacity=512)
MAP = EngineContract(
    "test.map",
    1,
    1,
    (Port("rows", PortKind.DATASET),),
    (
        Port("rows", PortKind.DATASET),
        Port("metrics", PortKind.METRICS, reduction=Reduction.SUM),
    ),
    row_wise="rows",
    row_output="rows",
    capacity=4,
)
CALL = EngineContract(
    "test.call",
    1,
    1,
    NOOP.inputs,
    (METRICS,),
    determinism=Determinism.EXTERNAL,
    idempotent=False,
    idempotent_with=(("safe", True),),
)
ASK = EngineContract(
    "test.ask",
    1,
    1,
    (
        Port("model", PortKind.MODEL, component=True),
        Port("adapter", PortKind.ADAPTER, required=False, component=True, mixable=True),
    ),
    (METRICS,),
    identity_fields=("dtype",),
    capacity=8,
    component_memory_factor=1.0,
)
TUNE = EngineContract(
    "test.tune", 1, 1, (METRICS,), (Port("adapter", PortKind.ADAPTER),), capacity=4
)
CODE = EngineContract(
    "test.code", 1, 1, NOOP.inputs, (METRICS,), capacity=1, user_code=True, base_memory_mib=64
)
CONTRACTS = (CODE, NOOP, SOLO, MANY, MAP, CALL, ASK, TUNE, RESOLVE)


def shape(name: str, **changes: Any) -> WorkerShape:
    values: dict[str, Any] = {
        "name": name,
        "pool": "default",
        "device_class": "cpu",
        "device_memory_mib": 4096,
        "host_memory_mib": 4096,
        "cpus": 2,
        "price_nanousd_per_hour": PRICE,
        "engines": {k.name: k.versions for k in CONTRACTS},
        **changes,
    }
    return WorkerShape(**values)


def step(
    path: str,
    *edges: Edge,
    uses: EngineContract = NOOP,
    when: str = "",
    when_steps: tuple[str, ...] = (),
    cache: Cache | None = None,
    attempts: int = 3,
    timeout_s: float = 0.0,
    resources: Resources | None = None,
    **params: Any,
) -> StepPlan:
    return StepPlan(
        path=path,
        name=path,
        engine=uses.name,
        contract=uses.version,
        implementation=uses.implementation,
        params=params,
        fields={},
        edges=edges,
        when=when,
        when_steps=when_steps,
        cache=cache or Cache(),
        retry=Retry(attempts=attempts, backoff_s=1.0),
        timeout_s=timeout_s,
        resources=resources or Resources(),
    )


def after(*paths: str, required: bool = True) -> tuple[Edge, ...]:
    """Edges that wait for the metrics of these steps."""
    return tuple(
        Edge(f"after-{p}", "metrics", (StepSource(p, "metrics"),), required) for p in paths
    )


def rows_of(source: str | Artifact, port: str = "rows") -> Edge:
    if isinstance(source, Artifact):
        return Edge("rows", "dataset", (ArtifactSource("dataset", f"cas:{source.blob}"),))
    return Edge("rows", "dataset", (StepSource(source, port),))


def plan(
    *steps: StepPlan,
    namespace: str = "team-a",
    name: str = "w",
    outputs: dict[str, tuple[Any, ...]] | None = None,
    **changes: Any,
) -> Plan:
    return Plan(name, namespace, steps, outputs or {}, **changes)


def dataset(*texts: str) -> Artifact:
    """A dataset of one chunk a text."""
    manifest = Manifest(
        Schema.of({"text": "string"}),
        tuple(
            ChunkRef(digest_bytes(f"rows {t}".encode()), digest_bytes(t.encode()), 1, 10)
            for t in texts
        ),
    )
    blob = digest_bytes(encode_manifest(manifest))
    return Artifact(
        "dataset", dataset_digest(manifest), blob, 10 * len(texts), len(texts), manifest
    )


def metrics(**values: Any) -> Artifact:
    digest = digest_bytes(repr(sorted(values.items())).encode())
    return content_artifact("metrics", digest, 10, values)


def outputs_of(a: Assignment) -> dict[str, Artifact]:
    """What the test engines give: the same for the same action."""
    if a.engine == MAP.name:
        source = a.inputs["rows"].artifact
        texts = [f"{a.params}:{k.rows}" for k in (source.manifest or Manifest(Schema())).chunks]
        return {"rows": dataset(*texts), "metrics": metrics(count=len(texts))}
    if a.engine == TUNE.name:
        digest = digest_bytes(a.action_id.encode())
        return {"adapter": Artifact("adapter", digest, digest, 10)}
    return {"metrics": metrics(value=a.params.get("value", 0), of=a.action_id)}


def _is_good(result: ActionResult, not_before_s: float, min_trust: int) -> bool:
    return result.created_s >= not_before_s and result.provenance.trust >= min_trust


@dataclass
class World:
    settings: Settings = field(default_factory=lambda: Settings(watchdog_s=10.0))
    now: float = 1000.0
    epoch: int = 1
    cache: dict[tuple[str, str], ActionResult] = field(default_factory=dict)
    lost_blobs: set[str] = field(default_factory=set)
    finals: dict[str, RunStatus] = field(default_factory=dict)
    ended_runs: dict[str, Run] = field(default_factory=dict)
    held: dict[str, dict[str, Assignment]] = field(default_factory=dict)
    executed: list[str] = field(default_factory=list)
    publications: list[tuple[str, str, int]] = field(default_factory=list)
    lookups: int = 0
    discarded: set[str] = field(default_factory=set)
    copied: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    compared: list[c.CompareContent] = field(default_factory=list)
    ledger: dict[str, list[Line]] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    deaf: set[str] = field(default_factory=set)
    mute_store: bool = False
    unanswered: list[c.Command] = field(default_factory=list)
    evaluators_stopped: bool = False
    evaluated: list[str] = field(default_factory=list)
    told: list[tuple[str, tuple[PrewarmSpec, ...]]] = field(default_factory=list)
    drained: list[str] = field(default_factory=list)
    served: list[c.Serve] = field(default_factory=list)
    receipts: int = 0
    recovering_until_s: float = 0.0
    accounts: dict[str, Any] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.machine = Machine(
            epoch=self.epoch,
            catalog=Catalog(CONTRACTS),
            settings=self.settings,
            model=CostModel(),
            recovering_until_s=self.recovering_until_s,
            **self.accounts,
        )
        self.incarnations: dict[str, str] = {}
        self.seqs: dict[str, int] = {}

    # -- events ----------------------------------------------------------------------------------

    def apply(self, event: e.Event) -> None:
        pending = self.machine.apply(event, self.now)
        self.check()
        for command in pending:
            self._do(command)

    def _do(self, command: c.Command) -> None:  # noqa: C901, PLR0912, PLR0915 - a case each
        if self.mute_store and isinstance(command, c.LookUp | c.Publish | c.CheckBlobs):
            self.unanswered.append(command)
            return
        match command:
            case c.LookUp(key, scopes, not_before_s, min_trust):
                self.lookups += 1
                found = ((s, self.cache.get((s, key.action_id))) for s in scopes)
                good = ((s, r) for s, r in found if r and _is_good(r, not_before_s, min_trust))
                where, result = next(good, ("", None))
                elsewhere = "" if where == key.scope else where
                answer = e.LookedUp(key, result, scopes, not_before_s, min_trust, elsewhere)
                self.apply(answer)
            case c.Publish():
                self.copied.append((command.key.scope, command.copy_from))
                self._publish(command)
            case c.Assign(worker, assignment):
                if assignment.resume is not None:
                    digest = assignment.resume.artifact.digest
                    assert self.left.get(digest) == assignment.action_id, "of the same action"
                self.held.setdefault(worker, {})[assignment.attempt_id] = assignment
                self.generations[assignment.attempt_id] = command.generation
            case c.CancelAttempt(worker, attempt_id) if worker in self.deaf:
                pass
            case c.CancelAttempt(worker, attempt_id):
                if self.held.get(worker, {}).pop(attempt_id, None):
                    failure = FailureReport("cancelled", "cancelled")
                    self._sync(worker, ended=(self._end(attempt_id, failure=failure),))
            case c.CheckBlobs(uid, by_scope):
                digests = frozenset().union(*by_scope.values())
                self.apply(e.BlobsChecked(uid, digests & self.lost_blobs))
            case c.EvaluateCondition(uid, number, query):
                if self.evaluators_stopped:
                    self.unanswered.append(command)
                else:
                    self.evaluated.append(query.text)
                    self.apply(e.ConditionEvaluated(uid, number, verdict_of(query)))
            case c.DrainWorker(worker):
                self.drained.append(worker)
            case c.Prewarm(worker, openings):
                self.told.append((worker, openings))
            case c.Serve():
                self.served.append(command)
            case c.FinalizeRun(uid):
                self.finals[uid] = run_status(self.machine.state, uid, self.now)
                self.ended_runs[uid] = self.machine.state.runs[uid]
                self.apply(e.RunFinalized(uid))
            case c.AppendLedgerLine(uid, line):
                self.ledger.setdefault(uid, []).append(line)
            case c.DeleteCorruptBlobs(digests):
                self.discarded |= digests
            case c.CompareContent():
                self.compared.append(command)

    def _publish(self, command: c.Publish) -> None:
        key, result = command.key, command.result
        at = (key.scope, key.action_id)
        standing = self.cache.get(at)
        refused = standing is not None and not _is_good(
            standing, command.not_before_s, command.min_trust
        )
        if standing is not None and refused:
            result = msgspec.structs.replace(result, generation=standing.generation + 1)
        if standing is None or standing.generation < result.generation * (
            command.replace or refused
        ):
            self.cache[at] = result
            self.publications.append((key.scope, key.action_id, result.generation))
            if result.provenance.attempt_id:  # a step-level record stores no chunk
                for artifact in result.outputs.values():
                    self.lost_blobs -= set(artifact.blobs())
            self.apply(e.Published(key, result, adopted=False))
        else:
            self.apply(e.Published(key, standing, adopted=True))

    def answer(self) -> None:
        """Lets the store and the evaluators answer again."""
        self.mute_store = self.evaluators_stopped = False
        waiting, self.unanswered = self.unanswered, []
        for command in waiting:
            self._do(command)

    # -- workers ---------------------------------------------------------------------------------

    def join(self, *names: str, **changes: Any) -> None:
        for name in names:
            self.incarnations[name] = f"{name}-{self.now}"
            self.seqs[name] = 0
            self.hello(name, **changes)

    def hello(self, name: str, **changes: Any) -> None:
        started = changes.pop("started_s", self.now)
        held = tuple(AttemptProgress(a, "running") for a in self.held.get(name, {}))
        ended = changes.pop("ended", ())
        said = changes.pop("checkpoints", ())
        tenant = changes.pop("code_tenant", "")
        replicas = changes.pop("replicas", msgspec.UNSET)
        instances = changes.pop("instances", ())
        full = Hello(
            2,
            0,
            self.incarnations[name],
            started,
            shape(name, **changes),
            held,
            ended,
            instances=instances,
            checkpoints=said,
            code_tenant=tenant,
            replicas=replicas,
        )
        self.apply(e.WorkerConnected(full, self._generations(*held, *ended)))

    def _generations(self, *items: AttemptProgress | AttemptEnd) -> dict[str, int]:
        """What the gateway reads in the tokens; attempts of an earlier world are of the first."""
        return {i.attempt_id: self.generations.get(i.attempt_id, 1) for i in items}

    def _sync(self, worker: str, **changes: Any) -> None:
        self.seqs[worker] = self.seqs.get(worker, 0) + 1
        sync = Sync(self.seqs[worker], **changes)
        generations = self._generations(*sync.ended)
        self.apply(e.WorkerSynced(worker, self.incarnations[worker], sync, generations))

    def beat(self, *workers: str) -> None:
        for worker in workers or list(self.machine.state.workers):
            self._sync(worker)

    def serves(self, worker: str, *states: ServingReplicaState) -> None:
        """A worker reports all its replicas of services."""
        self._sync(worker, replicas=states)

    def begin(self, attempt_id: str, units: int = 0) -> None:
        worker = self.worker_of(attempt_id)
        self._sync(worker, progress=(AttemptProgress(attempt_id, "running", units),))

    def loads(self, attempt_id: str) -> None:
        """A worker says that the attempt's host loads."""
        self._sync(self.worker_of(attempt_id), progress=(AttemptProgress(attempt_id, "loading"),))

    def stores(self, attempt_id: str) -> None:
        """A worker says that the attempt's work is done and its outputs are being stored."""
        self._sync(self.worker_of(attempt_id), progress=(AttemptProgress(attempt_id, "storing"),))

    def checkpoint(self, attempt_id: str, done: float, *spoiled: str, digest: str = "") -> str:
        """A worker says that it stored a checkpoint, or that one is spoiled; its digest."""
        name = Digest(digest or digest_bytes(f"{attempt_id} at {done}".encode()))
        if spoiled:
            self.left.pop(name, None)
        else:
            self.left[name] = attempt_id.split("/")[1]
        report = Checkpoint(attempt_id, name, done, 100, tuple(map(Digest, spoiled)))
        self._sync(self.worker_of(attempt_id), checkpoints=(report,))
        return name

    def worker_of(self, attempt_id: str) -> str:
        return next(w for w, held in self.held.items() if attempt_id in held)

    def _end(self, attempt_id: str, **changes: Any) -> AttemptEnd:
        return AttemptEnd(attempt_id, attempt_id.split("/")[1], **changes)

    def finish(self, attempt_id: str, **changes: Any) -> None:
        worker = self.worker_of(attempt_id)
        assignment = self.held[worker].pop(attempt_id)
        self.executed.append(attempt_id)
        values = {"outputs": outputs_of(assignment), "usage": Usage(units=1, run_s=0.1), **changes}
        self._sync(worker, ended=(self._end(attempt_id, **values),))

    def fail(
        self,
        attempt_id: str,
        kind: str,
        detail: str = "",
        message: str = "broken",
        run_s: float = 0.0,
        reason: str = "",
    ) -> None:
        worker = self.worker_of(attempt_id)
        self.held[worker].pop(attempt_id)
        end = self._end(
            attempt_id,
            failure=FailureReport(kind, message, detail=detail, reason=reason),
            usage=Usage(run_s=run_s),
        )
        self._sync(worker, ended=(end,))

    def lose(self, worker: str) -> None:
        self.held.pop(worker, None)
        self.apply(e.WorkerLost(worker))

    # -- time ------------------------------------------------------------------------------------

    def tick(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.apply(e.TimeAdvanced())
        if self.machine.wants_decision:
            self.place()

    def place(self) -> None:
        snapshot = self.machine.snapshot(self.now)
        decision = decide(snapshot, self.machine.state.model)
        self.apply(e.PlacementDecided(decision))

    def attempts(self) -> list[Assignment]:
        return [a for held in self.held.values() for a in held.values()]

    def submit(
        self,
        made: Plan,
        uid: str = "",
        *,
        share: str = "",
        unattributed: bool = False,
        min_trust: int = 0,
        artifacts: Iterable[Artifact] = (),
        **changes: Any,
    ) -> str:
        uid = uid or f"run-{len(self.machine.state.runs) + len(self.finals) + 1}"
        own = f"ns-{made.namespace}"
        lookup = (own, share) if share else (own,)
        scopes = ScopePlan(
            share or own, lookup, own, unattributed=unattributed, min_trust=min_trust
        )
        found = {f"cas:{a.blob}": a for a in artifacts}
        self.apply(e.Submitted(uid, made, self.now, scopes, found, **changes))
        return uid

    def run(self, until: Callable[["World"], bool] | None = None, rounds: int = 200) -> "World":
        """Places and finishes everything, a second a round, until nothing is left to do."""
        for _ in range(rounds):
            if until is not None and until(self):
                return self
            if not self.machine.state.runs:
                return self
            self.tick(0.5)
            self.beat()
            for assignment in self.attempts():
                if any(assignment.attempt_id in held for held in self.held.values()):
                    self.now += 0.01
                    self.finish(assignment.attempt_id)
        raise AssertionError(self.story())

    def story(self) -> str:
        return "\n".join(
            f"{run.uid} {path}: {s.state} {s.wait_reason} total={s.total} left={s.pending_parts} "
            f"open={run.open_steps} {run.checking=} {run.finishing=} {run.unsettled=}"
            for run in self.machine.state.runs.values()
            for path, s in run.steps.items()
        )

    # -- laws ------------------------------------------------------------------------------------

    def check(self) -> None:
        state = self.machine.state
        book = state.book
        open_bills = sum(a.charged_nanousd for a in state.attempts.values())
        sums = "receipts + services + fabric + unsettled = bill"
        assert book.unsettled_nanousd == open_bills, sums
        assert state.service_spend.total() == book.services_nanousd, sums
        by_day = sum(row.paid_nanousd for row in state.service_charges.rows())
        assert by_day == book.services_nanousd, sums
        for key in state.ready:
            assert state.actions[key].state == "ready"
        for action in state.actions.values():
            assert action.subscribers, f"{action.key} has no subscribers"
        for run in state.runs.values():
            assert run.open_steps == sum(not s.ended for s in run.steps.values())
            assert run.reserved_nanousd >= 0
            budget = run.conditions
            assert budget.reserved == sum(p.granted for p in run.evaluations.values())
            assert budget.spent <= budget.total + len(run.evaluations) + 1
            assert run.evaluations or not run.unevaluated, "what waits is evaluated some day"
        for action in state.unnoted.values():
            assert state.actions.get(action.key) is action
            assert action.checkpoint is None or not action.checkpoint.noted
        published = self.publications
        assert len(published) == len(set(published)), "one publication per action and generation"


def only(world: World) -> Assignment:
    """The one attempt there is."""
    (assignment,) = world.attempts()
    return assignment
