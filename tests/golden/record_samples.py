"""One of each record that the store holds, and of each ledger line, with every field filled."""

from datetime import date

from tests.golden.protocol_samples import DATASET, MANIFEST, METRICS, USAGE, digest

from flowmesh_api.v1 import audit
from flowmesh_api.v1.audit import (
    AuditCheck,
    AuditFinding,
    AuditOrder,
    AuditReport,
    AuditSkip,
    QuarantineEntry,
)
from flowmesh_api.v1.enums import Disclosure, Sharing, Verdict
from flowmesh_api.v1.fabric import CachePolicy, Verify
from flowmesh_api.v1.lineage import ArtifactInfo, Derivation, Producer
from flowmesh_api.v1.runs import RunStatus, RunSummary, StepStatus
from flowmesh_api.v1.trace import (
    AttemptRecord,
    EngineRecord,
    PartRecord,
    RecordedRun,
    StepDependency,
    StepRecord,
    Weights,
)
from flowmesh_api.v1.why import AttemptDetails, AttemptLine, HitLine, ScoredWorker
from flowmesh_api.v1.withheld import WithheldResult
from flowmesh_cli.connection.owner import OwnerRecord
from flowmesh_control.openai.records import (
    BatchIndex,
    BatchRecord,
    ErrorLine,
    FailedLine,
    FileRecord,
)
from flowmesh_control.records.accounts import AccountsRecord
from flowmesh_control.records.ended_index import EndedRunEntry
from flowmesh_control.records.revocations import Revocation
from flowmesh_control.records.run_logs import RunLogRecord
from flowmesh_control.records.run_records import AcceptedRecord, FinalRecord, PinsRecord
from flowmesh_control.records.service_records import (
    PendingRelease,
    ReleasedComponent,
    ServiceRecord,
    ServiceRelease,
    StoredToken,
)
from flowmesh_control.records.store_format import StoreFormat
from flowmesh_control.runs.cancellations import Cancellation
from flowmesh_core.accounting.fabric_account import FabricAccount
from flowmesh_core.accounting.ledger_lines import (
    AmendmentLine,
    CheckpointLine,
    ConditionLine,
    Line,
    StepLine,
    UnknownLine,
    VerdictLine,
)
from flowmesh_core.accounting.service_charges import ServiceDay
from flowmesh_core.audit.provenance import provenance_of
from flowmesh_core.costmodel.fetch_times import LearnedNetwork
from flowmesh_core.costmodel.model import CostModel, FittedModel
from flowmesh_core.costmodel.regression import PriorFit
from flowmesh_core.costmodel.residuals import Residuals
from flowmesh_core.graph.component_plan import ComponentPlan
from flowmesh_core.graph.plan import (
    ArtifactSource,
    Cache,
    Edge,
    Plan,
    Resources,
    Retry,
    StepPlan,
    StepSource,
    UtilityWeights,
)
from flowmesh_core.graph.service_plan import ServicePlan
from flowmesh_core.machine.published_parts import PublishedPart
from flowmesh_core.metrics.counters import UsageRow, UsageShare
from flowmesh_core.protocol.results import ActionResult, Bill, PartProvenance, Provenance
from flowmesh_core.protocol.router_services import ChatFields, ServiceEntry, ServiceToken
from flowmesh_core.sharing.scopes import ScopePlan
from flowmesh_core.stages.expected_arrivals import ExpectedArrivals
from flowmesh_core.stages.service_graph import ServiceGraph, Stage
from flowmesh_store.tree import TreeFile, TreeManifest

PROVENANCE = Provenance(
    worker="w1",
    pool="gpus",
    device_class="nvidia-h200",
    attempt_id="ns-a/0a/1",
    libraries={"torch": "2.13.0"},
    started_s=1_700_000_000.5,
    ended_s=1_700_000_001.5,
    trust=3,
    parts=(PartProvenance("ns-a/0b/1", "w2", "gpus", 1_700_000_002.5),),
)
PUBLISHED_BY = provenance_of(PROVENANCE)
AGAIN_BY = audit.Provenance(worker="w2", pool="cpus", device_class="cpu")

LEDGER: dict[str, Line] = {
    "attempt": AttemptLine(
        time_s=1_700_000_010.5,
        step="sample",
        chunk=3,
        action_id=digest(50),
        attempt_id="ns-a/0a/1",
        worker="w1",
        incarnation="process-1",
        outcome="published",
        bill_nanousd=1001,
        share_nanousd=1002,
        load_nanousd=1003,
        sharers=2,
        units=1004,
        tokens_in=1005,
        tokens_out=1006,
        run_s=10.07,
        load_s=10.08,
        joules=10.09,
        joules_estimated=False,
        message="done",
        placed=(
            ScoredWorker(
                worker="w1",
                utility=0.91,
                throughput=0.92,
                cost=0.93,
                locality=0.94,
                start_s=9.5,
                finish_s=9.6,
                nanousd=97,
                has_instance=True,
            ),
        ),
        ran=AttemptDetails(
            signature=digest(51),
            pool="gpus",
            device_class="nvidia-h200",
            price_nanousd_per_hour=3_500_000_000,
            devices=2,
            device_memory_mib=143771,
            assigned_s=1_700_000_009.5,
            memory_mib=4096,
            component_bytes=2_000_000,
            fetch_s=0.5,
            put_s=0.25,
        ),
    ),
    "hit": HitLine(
        time_s=1_700_000_011.5,
        step="sample",
        chunk=4,
        action_id=digest(52),
        hit="in-flight",
        saved_nanousd=1101,
        producer="run-2",
        sharers=("run-3", "run-4"),
        joules_saved=11.02,
        units=1103,
    ),
    "checkpoint": CheckpointLine(
        time_s=1_700_000_012.5,
        step="tune",
        chunk=-1,
        scope="ns-team-a",
        action_id=digest(53),
        digest=digest(54),
        done=12.01,
        size_bytes=1202,
        trust=3,
    ),
    "amendment": AmendmentLine(
        time_s=1_700_000_013.5, changes={"suspend": True, "budgetNanousd": 1301}
    ),
    "step": StepLine(
        time_s=1_700_000_014.5,
        step="tune",
        state="FAILED",
        reason="engine",
        message="the engine ended",
        outputs={"rows": DATASET, "metrics": METRICS, "none": None},
    ),
    "condition": ConditionLine(
        time_s=1_700_000_016.5,
        step="tune",
        digest=digest(55),
        holds=True,
        evaluation_steps=1601,
        message="the condition needs more than 5,000 steps",
        remedy="compare values that a step has computed",
    ),
    "verdict": VerdictLine(
        time_s=1_700_000_015.5,
        phase="Failed",
        reason="engine",
        message="the engine ended",
        step="tune",
    ),
    "of a newer release": UnknownLine(b'{"type":"evaluated","time_s":1700000020.5,"verdict":true}'),
}

ACTION_RESULT = ActionResult(
    action_id=digest(60),
    generation=2,
    engine="llm.generate",
    contract=3,
    implementation=4,
    inputs={"rows": digest(61)},
    outputs={"rows": DATASET, "metrics": METRICS},
    params={"maxTokens": 16},
    fields={"dtype": "float32"},
    inline={digest(8): b"\x00small\xff"},
    usage=USAGE,
    bill=Bill(nanousd=62, joules=6.3, joules_estimated=False),
    provenance=PROVENANCE,
    created_s=1_700_000_020.5,
    expires_s=1_700_000_021.5,
    run_uid="run-1",
    namespace="team-a",
)
TREE = TreeManifest(
    files=[
        TreeFile(path="bin/run", digest=digest(63), bytes=64, mode=0o755),
        TreeFile(path="config.json", digest=digest(65), bytes=66),
    ]
)

SCOPES = ScopePlan(
    publish="group-x",
    lookup=("group-x", "ns-team-a"),
    private="ns-team-a",
    salt="salt",
    ttl_s=3600.5,
    policy="share",
    inputs=("ns-team-b",),
    verify_sample=0.02,
    verify_min_trust=2,
)
PLAN = Plan(
    name="weekly",
    namespace="team-a",
    steps=(
        StepPlan(
            path="tune[lr=1e-5]",
            name="tune",
            engine="train.sft",
            contract=2,
            implementation=3,
            params={"epochs": 1},
            fields={"dtype": "bfloat16"},
            edges=(
                Edge(
                    port="rows",
                    kind="dataset",
                    sources=(
                        StepSource(step="double", port="rows"),
                        ArtifactSource(kind="dataset", reference="cas:dataset:ab.cd"),
                    ),
                    required=False,
                    concatenate=True,
                    pick="all",
                    when_skipped="empty",
                    empty_columns={"text": "string"},
                ),
            ),
            when="steps.one.rows.count > 0",
            when_steps=("one",),
            matrix={"lr": 1e-5},
            resources=Resources(
                memory_mib=70,
                gpu_product=("nvidia-h200",),
                tensor_parallel=2,
                labels={"disk": "nvme"},
                anti_labels={"spot": "true"},
            ),
            retry=Retry(attempts=5, backoff_s=2.5),
            cache=Cache(reuse="run", salt="salt", max_age_s=71.5, ignored_inputs=("note",)),
            timeout_s=72.5,
            secrets=("TOKEN",),
            avoid_workers=("w1",),
            after=("one",),
        ),
    ),
    outputs={"adapter": (StepSource(step="tune[lr=1e-5]", port="adapter"),)},
    params={"topic": "birds"},
    weights=UtilityWeights(alpha=0.5, beta=2.0, gamma=0.25),
    priority=7,
    budget_nanousd=73,
    deadline_s=74.5,
    suspend=True,
    audit_of="run-0",
    paid_by_fabric=True,
)
PINS = PinsRecord(
    scheme=1,
    plan=PLAN,
    scopes=SCOPES,
    artifacts={"cas:dataset:ab.cd": DATASET},
    quarantine_salts={digest(75): 2},
    level=3,
)
ACCEPTED = AcceptedRecord(
    uid="weekly-1",
    name="weekly",
    namespace="team-a",
    digest=digest(76),
    created_s=1_700_000_030.5,
    document={"kind": "FlowMeshWorkflow", "spec": {"steps": []}},
    uploads={"rows": "cas:dataset:ab.cd"},
    pins=PINS,
)

STEP_STATUS = StepStatus(
    path="tune[lr=1e-5]",
    engine="train.sft",
    state="RUNNING",
    reason="memory",
    message="no worker has enough memory",
    actions=80,
    done=81,
    hits=82,
    in_flight=83,
    executed=84,
    attempts=85,
    done_units=8.6,
    total_units=8.7,
    unit="steps",
    tokens=88,
    tokens_per_s=8.9,
    workers=("w1", "w2"),
    paid_nanousd=90,
    saved_nanousd=91,
    shared_with=("team-b/run-9",),
    started_s=1_700_000_040.5,
    ended_s=1_700_000_041.5,
    matrix={"lr": 1e-5},
    doing="running",
)
RUN_STATUS = RunStatus(
    uid="weekly-1",
    name="weekly",
    namespace="team-a",
    phase="Failed",
    created_s=1_700_000_030.5,
    ended_s=1_700_000_042.5,
    steps=(STEP_STATUS,),
    counts={"RUNNING": 1},
    actions=92,
    executed=93,
    hits=94,
    paid_nanousd=95,
    saved_nanousd=96,
    joules=9.7,
    joules_estimated=False,
    budget_nanousd=98,
    deadline_s=9.9,
    priority=100,
    failed_step="tune[lr=1e-5]",
    reason="engine",
    message="the engine ended",
    remedy="look into its log",
    log=("one", "two"),
    outputs={"adapter": {"kind": "adapter", "digest": digest(77)}, "none": None},
    eta_s=101.5,
    audit_of="run-0",
)
SUMMARY = RunSummary(
    uid="weekly-1",
    name="weekly",
    namespace="team-a",
    phase="Failed",
    created_s=1_700_000_030.5,
    ended_s=1_700_000_042.5,
    steps=110,
    completed=111,
    failed=112,
    skipped=113,
    cancelled=114,
    executed=115,
    hits=116,
    paid_nanousd=117,
    saved_nanousd=118,
    message="the engine ended",
    audit_of="run-0",
)
ACCOUNTS = AccountsRecord(
    time_s=1_700_000_050.5,
    book=FabricAccount(
        bill_nanousd=120,
        receipts_nanousd=121,
        fabric_nanousd=122,
        saved_nanousd=123,
        executed=124,
        hits_published=125,
        hits_in_flight=126,
        hits_step_level=127,
        services_nanousd=139,
    ),
    billed={"process-1": 128},
    counted={"weekly-1": 129},
    unsettled={"ns-a/0a/1": 130},
    shares=(
        UsageRow(
            tenant="team-a",
            pool="gpus",
            model="smollm2",
            share=UsageShare(
                paid_nanousd=131,
                saved_nanousd=132,
                joules=13.3,
                joules_estimated=13.4,
                joules_saved=13.5,
            ),
        ),
    ),
    epoch=7,
    paid={"team-a": (13.6, 1_700_000_049.5)},
    spent={"team-a": {472_222: 137}},
    uploaded={"team-b": {472_221: 138}},
    services={"team-a/ask": 139},
    service_days=(ServiceDay("team-a/ask", date(2023, 11, 14), "gpus", 141, 139),),
)
LOGS = RunLogRecord(steps={"tune": {"ns-a/0a/1": [(1_700_000_001.5, "a line")]}})
POLICY = CachePolicy(
    name="share",
    scope=Sharing.GROUP,
    group="x",
    namespaces=("team-a", "*"),
    labels={"team": "a"},
    salt="salt",
    ttl_s=3600.5,
    reference_generation=3,
    disclosure=Disclosure.OPEN,
    min_trust=2,
    verify=Verify(sample=0.02, min_trust=3),
)
_GRAPH = ServiceGraph(
    (Stage("hits", "search", "/components/search", {"q": "request.q"}, {"k": 3}, stream=True),),
    {"rows": "hits.rows"},
)
_ENTRY = ServiceEntry(
    service="team-a/ask",
    model="smol",
    tokens=(ServiceToken(hash="cd" * 32, namespace="team-a", expires_s=1_700_000_062.5),),
    timeout_s=30.5,
    in_flight_max=12,
    created_s=1_700_000_060.5,
    weights={"team-a": 2.5},
    placed={"team-a/ask/llm/r1/0": "w1"},
    tool_parser="hermes",
    graph=_GRAPH,
    slo_s=4.5,
    slo_scale=3.0,
    on_late="refuse",
    request_bytes_max=65_536,
    max_in_flight=13,
    request_schema={"type": "object"},
    miss_rate=0.05,
    keys={"search": "request.user"},
    chat=ChatFields(question="question", answer="text"),
    ttft_s=1.5,
    tpot_s=0.05,
    adapters=("german",),
)
_COMPONENT = ComponentPlan(
    name="llm",
    step=PLAN.steps[0],
    replicas_min=2,
    replicas_max=3,
    calls_max=16,
    affinity="docs",
)
_ARRIVALS = ExpectedArrivals(rate_per_s=0.5, cv=2.0, peak_per_s=2.5)
SERVICE = ServiceRecord(
    namespace="team-a",
    name="ask",
    document={"kind": "FlowMeshService"},
    model="smol",
    created_s=1_700_000_060.5,
    generation=4,
    pending=PendingRelease(
        plan=ServicePlan(
            imports=PLAN, components=(_COMPONENT,), model="smol", graph=_GRAPH, arrivals=_ARRIVALS
        ),
        uid="service-ask-1",
        scopes=SCOPES,
        artifacts={"cas:model:x.y": METRICS},
        entry=_ENTRY,
    ),
    release=ServiceRelease(
        name="r1",
        components=(ReleasedComponent(plan=_COMPONENT, models={"model": METRICS}),),
        read_scopes=("ns-team-a",),
        min_trust=1,
        entry=_ENTRY,
        arrivals=_ARRIVALS,
    ),
    failure="the run ended",
    tokens=(
        StoredToken(id="t1", hash="ab" * 32, created_s=1_700_000_060.5, expires_s=1_700_000_061.5),
    ),
    uid="uid-1",
    runs={"vectors": "index-1"},
    uploads={"base": "cas:model:x.y"},
    labels={"team": "a"},
    paid_before_nanousd=70,
)
STORE_FORMAT = StoreFormat(identity_scheme=2, layout=2)
QUARANTINED = QuarantineEntry(
    signature_class=digest(78),
    engine="llm.generate",
    contract=2,
    implementation=7,
    fields={"dtype": "float32"},
    bump=3,
    active=True,
    since_s=1_700_000_060.5,
    audit="audit-1",
    run_uid="weekly-1",
    step="sample",
    action_id=digest(79),
    port="rows",
    published=digest(80),
    again=digest(81),
    published_by=PUBLISHED_BY,
    again_by=AGAIN_BY,
)
WITHHELD = WithheldResult(
    scope="group-x",
    action_id=digest(96),
    engine="llm.generate",
    generation=2,
    created_s=1_700_000_066.5,
    withheld_s=1_700_000_067.5,
    reason="worker w1, pool gpus",
    expires_s=1_700_000_068.5,
    uid="weekly-1",
    namespace="team-a",
    made_by=PUBLISHED_BY,
    parts=(("ns-a/0b/1", "w2", "gpus", 1_700_000_002.5),),
)
CHECK = AuditCheck(
    path="sample.3",
    step="sample",
    chunk=3,
    action_id=digest(82),
    scope="ns-team-a",
    engine="llm.generate",
    contract=2,
    implementation=7,
    determinism="exact",
    signature_class=digest(83),
    fields={"dtype": "float32"},
    outputs={"rows": digest(84)},
    published_by=PUBLISHED_BY,
    published_s=1_700_000_061.5,
    bump=4,
    doubted=audit.Repetition(outputs={"rows": digest(95)}, made_by=AGAIN_BY),
)
AUDIT = AuditReport(
    uid="audit-1",
    order=AuditOrder(
        run_uid="weekly-1",
        run="weekly",
        namespace="team-a",
        share=0.5,
        seed=140,
        created_s=1_700_000_062.5,
        eligible=141,
        checks=(CHECK,),
        unchecked=(
            AuditSkip(
                step="ask", chunk=-1, action_id=digest(85), engine="http.chat", reason="gone"
            ),
        ),
        passed_over={"sampled": 142},
        sampled=True,
    ),
    phase="Succeeded",
    findings=(
        AuditFinding(
            check=CHECK,
            verdict=Verdict.DIFFERS,
            again={"rows": digest(86)},
            again_by=AGAIN_BY,
            ports=("rows",),
            quarantines=True,
            detail="made elsewhere",
        ),
    ),
    counts={"same": 0, "differs": 1},
    quarantined=(digest(83),),
    paid_nanousd=143,
    ended_s=1_700_000_063.5,
    cut_off="budget",
)
DERIVATION = Derivation(
    uid="weekly-1",
    run="weekly",
    namespace="team-a",
    step="sample",
    engine="llm.generate",
    contract=2,
    implementation=7,
    inputs={"rows": (digest(87), digest(88))},
    outputs={"rows": digest(89)},
    time_s=1_700_000_064.5,
    action_ids=(digest(90),),
    actions=150,
    hits=151,
    producers=("run-2",),
    params={"maxTokens": 16},
    fields={"dtype": "float32"},
    about={digest(89): ArtifactInfo(kind="dataset", size_bytes=152, rows=153, blob=digest(91))},
    makers=(
        Producer(
            worker="w1",
            pool="gpus",
            device_class="nvidia-h200",
            libraries={"vllm": "0.27.1"},
            actions=154,
        ),
    ),
    row_port="rows",
    row_output="rows",
    partial=True,
)
TRACE = RecordedRun(
    run="weekly-1",
    tenant="team-a",
    phase="Succeeded",
    created_s=1_700_000_070.5,
    ended_s=1_700_000_071.5,
    publish="group-x",
    lookup=("group-x",),
    private="ns-team-a",
    weights=Weights(alpha=0.5, beta=2.0, gamma=0.25),
    priority=160,
    budget_nanousd=161,
    deadline_s=16.2,
    paid_nanousd=163,
    joules=16.4,
    engines=(
        EngineRecord(
            name="llm.generate",
            contract=2,
            implementation=7,
            work_unit="tokens",
            capacity=165,
            accelerator=True,
            memory_mib=166,
        ),
    ),
    steps=(
        StepRecord(
            step="sample",
            engine="llm.generate",
            contract=2,
            implementation=7,
            state="COMPLETED",
            after=(StepDependency(step="prepare", rows=True),),
            memory_mib=167,
            tensor_parallel=2,
            reuse="run",
        ),
    ),
    parts=(
        PartRecord(
            step="sample",
            chunk=3,
            action=digest(92),
            hit="published",
            producer="run-2",
            saved_nanousd=168,
        ),
    ),
    attempts=(
        AttemptRecord(
            step="sample",
            chunk=4,
            action=digest(93),
            attempt="ns-a/0a/1",
            outcome="published",
            ended_s=1_700_000_071.25,
            bill_nanousd=170,
            share_nanousd=171,
            units=172,
            tokens_in=173,
            tokens_out=174,
            run_s=17.5,
            load_s=17.6,
            fetch_s=17.7,
            put_s=17.8,
            joules=17.9,
            sharers=2,
            worker="w1",
            pool="gpus",
            device_class="nvidia-h200",
            devices=2,
            device_memory_mib=180,
            price_nanousd_per_hour=181,
            signature=digest(94),
            memory_mib=182,
            component_bytes=183,
            assigned_s=1_700_000_070.75,
        ),
    ),
)
FINAL = FinalRecord(
    epoch=7,
    status=RUN_STATUS,
    outputs={"rows": (DATASET,), "none": ()},
    scope="group-x",
    read_scopes=("ns-team-a", "group-x"),
    partial={"rows": (PublishedPart(DATASET, 64),)},
)
OPENAI_FILE = FileRecord(
    id="file-019a0000000000112233445566",
    namespace="team-a",
    filename="in.jsonl",
    size_bytes=1234,
    created_s=1_700_000_000.5,
    blob=digest(60),
    scope="ns-team-a",
    deleted_s=1_700_000_100.5,
)
OPENAI_BATCH = BatchRecord(
    id="batch_019a0000000000112233445566",
    namespace="team-a",
    uid="batch-019a0000000000112233445566",
    endpoint="/v1/chat/completions",
    file_id=OPENAI_FILE.id,
    window="24h",
    created_s=1_700_000_001.5,
    scope="ns-team-a",
    metadata={"team": "search"},
    namespace_labels={"env": "prod"},
    index=digest(61),
    total=100,
    wrong=2,
    started_s=1_700_000_002.5,
    failed=FailedLine("mismatched_model", "line 14 names another model", 14),
    failed_s=1_700_000_003.5,
    cancelling_s=1_700_000_004.5,
)
OPENAI_INDEX = BatchIndex(
    custom_ids=["a", "b"],
    wrong=[
        ErrorLine(
            3,
            "c",
            400,
            {"error": {"message": "m", "type": "t", "param": "priority", "code": "c"}},
        )
    ],
)
ENDED = [EndedRunEntry(epoch=7, run=SUMMARY)]
REVOCATION = Revocation(
    identity=digest(50),
    kind="dataset",
    blob=digest(51),
    namespace="team-a",
    revoked_s=1_700_000_090.5,
    generation=2,
    derived=(digest(52), digest(53)),
    consents={f"ns-team-a/{digest(50)}": 1_700_000_089.5},
    blobs={"ns-team-a": (digest(54),)},
    forget=(digest(55),),
    is_complete=True,
    document='{"identity":"..."}\n{"payloadType":"...","signatures":[]}\n',
)
CANCELLATION = Cancellation(time_s=1_700_000_080.5, reason="not needed")
DATASET_MANIFEST = MANIFEST
OWNER = OwnerRecord(
    pid=190,
    url="http://127.0.0.1:191",
    port=191,
    token="api-token",
    worker_token="worker-token",
    serves="up",
    started_s=1_700_000_090.5,
    workers={"local-1": 192},
)


def cost_model() -> CostModel:
    """A model whose numbers are all different, not learned, so that they depend on no formula."""
    fit = PriorFit((1.5, 2.5, 3.5, 4.5))
    fit.spread = [[n + m / 8 for m in range(4)] for n in range(4)]
    fit.count, fit.streak, fit.usual, fit.error = 5, -2, 0.25, 0.125
    learned = FittedModel(fit, 0.75)
    learned.residuals = Residuals([1.25, 0.5])
    learned.load_count = 3
    model = CostModel()
    model.learned["nvidia-h200", "llm.generate"] = learned
    model.memory_mib_by_level["nvidia-h200", "llm.generate", digest(95)] = 4096
    model.fetches.by_pool["gpus"] = LearnedNetwork(0.625, 7)
    return model
