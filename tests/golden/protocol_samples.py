"""One message of each kind between worker and control plane, with every field filled."""

from flowmesh_core.dataset.manifest import ChunkRef, Manifest
from flowmesh_core.dataset.schema import Column, ColumnType, Schema
from flowmesh_core.protocol.messages import (
    Assignment,
    AttemptEnd,
    AttemptProgress,
    Checkpoint,
    Component,
    ControlMessage,
    Desired,
    EngineInstanceState,
    EngineVariant,
    EngineVersion,
    FailureReport,
    Hello,
    InputRef,
    LogLine,
    PrewarmSpec,
    Refused,
    RouterAddress,
    ServingReplica,
    ServingReplicaState,
    Sync,
    Welcome,
    WorkerMessage,
    WorkerShape,
)
from flowmesh_core.protocol.results import Artifact, Usage
from flowmesh_core.stages.stage_timing import StageTiming
from flowmesh_core.units import Digest


def digest(number: int) -> Digest:
    return Digest(f"{number:02x}" * 32)


MANIFEST = Manifest(
    schema=Schema((Column("n", ColumnType.INT), Column("word", ColumnType.STRING))),
    chunks=(
        ChunkRef(rows=digest(1), blob=digest(2), count=31, bytes=901),
        ChunkRef(rows=digest(3), blob=digest(4), count=33, bytes=903),
    ),
    format=1,
)
DATASET = Artifact(
    kind="dataset",
    digest=digest(5),
    blob=digest(6),
    size_bytes=1804,
    rows=64,
    manifest=MANIFEST,
)
METRICS = Artifact(
    kind="metrics",
    digest=digest(7),
    blob=digest(8),
    size_bytes=17,
    value={"accuracy": 0.73, "of": 200, "by": ["exact", None, True]},
)
USAGE = Usage(
    units=101,
    tokens_in=102,
    tokens_out=103,
    load_s=1.04,
    run_s=1.05,
    fetch_s=1.06,
    put_s=1.07,
    joules=1.08,
    joules_estimated=False,
    peak_memory_mib=109,
    resumed=True,
    fetched_bytes=112,
)
FAILURE = FailureReport(
    kind="engine",
    message="the engine ended",
    remedy="look into its log",
    detail="the last line",
    retry_after_s=11.5,
    reason="identity",
)
SHAPE = WorkerShape(
    name="w1",
    pool="gpus",
    device_class="nvidia-h200",
    device_memory_mib=143771,
    host_memory_mib=515_000,
    cpus=48,
    price_nanousd_per_hour=3_500_000_000,
    engines={"llm.generate": EngineVersion(2, 7), "data.sql": EngineVersion(1, 3)},
    devices=2,
    variants=(
        EngineVariant(
            engine="llm.generate",
            implementation="vllm",
            dtypes=("bfloat16", "float16"),
            batch_invariant=(False,),
        ),
    ),
    price_estimated=False,
    power_w=1400.5,
    idle_w=150.25,
    zone="zone-a",
    node="node-1",
    labels={"disk": "nvme"},
    allows_user_code=True,
    libraries={"torch": "2.13.0"},
    builtin_models=("smollm2",),
    sandbox="landlock",
    sandbox_minimum="weak",
    single_tenant=True,
    spot=True,
)
PROGRESS = AttemptProgress(
    attempt_id="ns-a/0a/1",
    phase="running",
    units=21,
    done=22.5,
    total=23.5,
    unit="tokens",
    token="token-1",
)
END = AttemptEnd(
    attempt_id="ns-a/0b/2.bb",
    action_id=digest(9),
    outputs={"rows": DATASET, "metrics": METRICS},
    inline={digest(8): b"\x00small\xff"},
    failure=FAILURE,
    usage=USAGE,
    libraries={"vllm": "0.27.1"},
    started_s=1_700_000_000.25,
    ended_s=1_700_000_060.5,
    log="one\ntwo",
    token="token-2",
)
INSTANCE = EngineInstanceState(
    signature=digest(10),
    engine="llm.generate",
    state="ready",
    capacity=256,
    memory_mib=8192,
    load_s=12.5,
    silent_s=3.5,
    asleep=True,
    wake_s=0.75,
)
COMPONENT = Component(digest=digest(11), tier="disk", size_bytes=2_000_000)
CHECKPOINT = Checkpoint(
    attempt_id="ns-a/0c/3",
    digest=digest(12),
    done=40.5,
    size_bytes=41,
    spoiled=(digest(13),),
    token="token-3",
)
ASSIGNMENT = Assignment(
    attempt_id="ns-a/0d/4",
    action_id=digest(14),
    signature=digest(15),
    engine="train.sft",
    contract=2,
    implementation=3,
    params={"epochs": 1, "rate": 1e-5},
    fields={"dtype": "bfloat16"},
    inputs={
        "rows": InputRef(artifact=DATASET, inline={digest(2): b"chunk"}),
        "model": InputRef(Artifact(kind="model", digest=digest(16), blob=digest(17))),
    },
    signature_params={"maxLength": 512},
    components=("model",),
    row_output="rows",
    memory_mib=4096,
    tensor_parallel=2,
    priority=5,
    timeout_s=600.5,
    isolate=True,
    cache_salt="salt",
    secrets={"TOKEN": "secret"},
    secret_hosts={"TOKEN": ("api.example.com",)},
    run_uids=("run-1", "run-2"),
    resume=InputRef(Artifact(kind="checkpoint", digest=digest(18), blob=digest(19))),
    token="token-4",
    tenant="team-a",
)
PREWARM = PrewarmSpec(
    signature=digest(20),
    engine="llm.generate",
    contract=2,
    implementation=7,
    components={"model": Artifact(kind="model", digest=digest(21), blob=digest(22))},
    per_attempt_components=("adapter",),
    signature_params={"maxModelLen": 2048},
    memory_mib=6000,
    tensor_parallel=4,
    read_scopes=("ns-team-a", "group-x"),
    token="reading-token",
)

REPLICA = ServingReplica(
    replica_id="team-a/ask/llm/r1/0",
    service="team-a/ask",
    component="llm",
    release="r1",
    opening=PREWARM,
    calls_max=16,
    salts={"team-a": "salt-a"},
    timings={"answer": StageTiming(target_s=0.5, visits=2, rest_s=0.25)},
    halvings=1,
    ttft_s=1.5,
    tpot_s=0.05,
)
REPLICA_STATE = ServingReplicaState(
    replica_id="team-a/ask/llm/r1/0",
    state="failed",
    reason="the engine did not load",
    calls=3,
    units=2048,
    signature=digest(20),
    memory_mib=6000,
    token="token",
    halvings=2,
    code_failures=1,
    call_s=12.5,
)

WORKER_MESSAGES: dict[str, WorkerMessage] = {
    "hello": Hello(
        version=2,
        epoch=7,
        incarnation="process-1",
        started_s=1_700_000_000.5,
        shape=SHAPE,
        attempts=(PROGRESS,),
        ended=(END,),
        instances=(INSTANCE,),
        components=(COMPONENT,),
        draining=True,
        checkpoints=(CHECKPOINT,),
        age_s=33.25,
        code_tenant="team-a",
        replicas=(REPLICA_STATE,),
        store_problem="the store did not answer",
    ),
    "sync": Sync(
        seq=8,
        progress=(PROGRESS,),
        ended=(END,),
        instances=(INSTANCE,),
        components=(COMPONENT,),
        logs=(LogLine(attempt_id="ns-a/0a/1", time_s=1_700_000_001.5, text="a line"),),
        metrics={"flowmesh_cache_bytes": 5.5},
        draining=True,
        goodbye=True,
        checkpoints=(CHECKPOINT,),
        replicas=(REPLICA_STATE,),
        store_problem="the store did not answer",
    ),
    "empty sync": Sync(seq=9),
}
CONTROL_MESSAGES: dict[str, ControlMessage] = {
    "welcome": Welcome(version=1, epoch=7, sync_interval_s=1.5),
    "refused": Refused(reason="wrong token", final=True),
    "desired": Desired(
        epoch=7,
        seq=10,
        assign=(ASSIGNMENT,),
        cancel=("ns-a/0a/1",),
        acknowledged=("ns-a/0b/2.bb",),
        full_state=True,
        keep=("ns-a/0c/3",),
        drain=True,
        prewarm=(PREWARM,),
        forget=(digest(35), digest(36)),
        replicas=(REPLICA,),
        routers=(
            RouterAddress(
                address="tls:routers:8481",
                group="g1",
                ca="PEM",
                certificate="PEM 2",
                key="PEM 3",
                authorities="PEM 4",
            ),
        ),
    ),
    "empty desired": Desired(epoch=7, seq=11),
}
