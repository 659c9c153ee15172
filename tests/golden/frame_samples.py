"""One frame of each kind between processes of a worker, and of the importer, every field filled."""

from tests.golden.protocol_samples import FAILURE, MANIFEST, digest

from flowmesh_control.importer import frames as importer
from flowmesh_worker.engines.code import sidecar_frames as sidecar
from flowmesh_worker.engines.code.limits import ProcessEnd, SandboxRequest, SandboxResult
from flowmesh_worker.engines.code.sandbox_level import CodeSandbox
from flowmesh_worker.ipc import frames

_DATASET = frames.HostInput(
    kind="dataset",
    digest=digest(30),
    paths=("chunks/0.parquet", "chunks/1.parquet"),
    manifest=MANIFEST,
    contents={digest(2): b"chunk"},
    blob=digest(37),
    verified=(0, 2),
)
_OUTPUT = frames.HostOutput(
    kind="dataset",
    manifest=MANIFEST,
    contents={digest(31): b"\x00rows\xff"},
    files={digest(32): "out/0.parquet"},
    path="out",
    value={"of": 3},
    main=digest(33),
)

TO_HOST: dict[str, frames.ToHost] = {
    "prepare": frames.Prepare(modules=("torch", "vllm"), threads=2, on_devices=True),
    "start": frames.Start(
        engine="llm.generate",
        loads="module:Engine",
        components={"model": frames.HostInput(kind="tree", digest=digest(34), paths=("model",))},
        devices=(0, 1),
        memory_mib=4096,
        threads=3,
        signature_params={"maxModelLen": 2048},
        scratch="scratch",
        mixed=("adapter",),
        sleeps=True,
    ),
    "run": frames.RunAttempt(
        attempt_id="ns-a/0a/1",
        action_id=digest(35),
        params={"maxTokens": 16},
        fields={"dtype": "float32"},
        inputs={"rows": _DATASET},
        row_output="rows",
        cache_salt="salt",
        priority=4,
        secrets={"TOKEN": "secret"},
        secret_hosts={"TOKEN": ("api.example.com",)},
        resume=frames.HostInput(kind="tree", digest=digest(36), paths=("checkpoint",)),
        tenant="team-a",
    ),
    "stop": frames.Stop(attempt_id="ns-a/0a/2"),
    "cancel": frames.Cancel(attempt_id="ns-a/0a/3"),
    "release": frames.Release(attempt_id="ns-a/0a/4"),
    "close": frames.Close(),
    "sleep": frames.FallAsleep(),
    "wake": frames.WakeUp(),
    "listen": frames.ListenForCalls(socket="/run/calls.sock"),
}
FROM_HOST: dict[str, frames.FromHost] = {
    "prepared": frames.Prepared(error="no module named x"),
    "loaded": frames.Loaded(capacity=8, load_s=2.5, libraries={"vllm": "0.27.1"}, asleep_mib=1100),
    "asleep": frames.Asleep(),
    "awake": frames.Awake(wake_s=0.75),
    "sleep failed": frames.SleepFailed(failure=FAILURE),
    "load failed": frames.LoadFailed(failure=FAILURE),
    "progressed": frames.Progressed(attempt_id="ns-a/0a/5", done=1.5, total=2.5, unit="rows"),
    "checkpointed": frames.Checkpointed(
        attempt_id="ns-a/0a/6", path="checkpoint", done=0.5, is_journal=True
    ),
    "ended": frames.AttemptEnded(
        attempt_id="ns-a/0a/7",
        outputs={"rows": _OUTPUT},
        failure=FAILURE,
        usage=frames.HostUsage(
            run_s=3.5, units=4, tokens_in=5, tokens_out=6, joules=7.5, peak_memory_mib=8
        ),
        keeps_files=True,
        libraries={"torch": "2.13.0"},
        verified={"rows": (1,)},
    ),
}
SidecarFrame = (
    sidecar.Started
    | sidecar.Printed
    | sidecar.Answered
    | sidecar.Ended
    | sidecar.Described
    | sidecar.OtherTenant
    | sidecar.ResidentOpened
)
SIDECAR: dict[str, SidecarFrame] = {
    "described": sidecar.Described(CodeSandbox("landlock", single_tenant=True), leaving=True),
    "other tenant": sidecar.OtherTenant(),
    "resident opened": sidecar.ResidentOpened(key="ab" * 16),
    "started": sidecar.Started(),
    "printed": sidecar.Printed(data=b"line\n\xff"),
    "answered": sidecar.Answered(data=b"\x81part"),
    "ended": sidecar.Ended(ProcessEnd(-9, "64 processes", ("a memory group",))),
}
CODE_TASK = SandboxRequest(
    code="def f(): ...",
    function="f",
    inputs={"rows": [{"n": 1, "word": "one"}]},
    args={"k": 2.5},
    cpu_s=3,
    memory_mib=512,
    file_mib=32,
    jail="jail",
    wanted_uid=65534,
    own_user=True,
    tenant="team-a",
)
DESCRIBE = sidecar.Describe()
OPEN_RESIDENT = sidecar.OpenResident(task=CODE_TASK)
ATTACH_RESIDENT = sidecar.AttachResident(key="ab" * 16)
CODE_ANSWER = SandboxResult(
    rows=[{"n": 1}],
    metrics={"of": 2},
    error="ValueError: no",
    remedy="return rows",
    traceback="line 1",
    lacks=["namespaces"],
    level="weak",
)
IMPORTER: dict[str, importer.Frame] = {
    "piece": importer.BlobPart(data=b"first\x00"),
    "blob": importer.BlobEnd(digest=digest(37), data=b"last\xff"),
    "decoded": importer.DatasetDecoded(
        digest=digest(38),
        manifest=digest(39),
        size_bytes=40,
        rows=41,
        columns=("n", "word"),
    ),
    "refused": importer.DecodingRefused(
        message="too wide", where="rows.csv", remedy="use fewer columns", limit=True
    ),
}
