"""What the gateway refuses of a worker's message, and that honest ones pass."""

import math
from typing import Any

import msgspec
import pytest
from tests.flowmesh_core.machine.world import dataset, shape

from flowmesh_core.dataset.manifest import ChunkRef, Manifest, dataset_digest
from flowmesh_core.dataset.schema import Schema
from flowmesh_core.identity.canonical import canonical_bytes
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.machine.step_results import metrics_artifact
from flowmesh_core.protocol import validation as v
from flowmesh_core.protocol.messages import (
    AttemptEnd,
    AttemptProgress,
    Checkpoint,
    Component,
    EngineInstanceState,
    EngineVariant,
    FailureReport,
    Hello,
    LogLine,
    ServingReplicaState,
    Sync,
)
from flowmesh_core.protocol.results import Artifact, Usage, content_artifact
from flowmesh_core.units import Digest

D = Digest("a" * 64)
ID = f"ns-team-a/{D}/3-17"
LANE = EngineInstanceState(D, "llm.generate", "ready", 8, 512, 31.5)
REPLICA = ServingReplicaState("a/b/llm/r1/0", "ready", "", 2, 900, D, 512)
METRICS = metrics_artifact({"accuracy": 0.5, "wrong": [1, None, "x"], "by": {"a": True}})
END = AttemptEnd(
    attempt_id=ID,
    action_id=D,
    outputs={"rows": dataset("one", "two"), "metrics": METRICS},
    inline={METRICS.blob: canonical_bytes(METRICS.value)},
    usage=Usage(units=5, tokens_in=3, run_s=0.5, joules=1.5, peak_memory_mib=100),
    libraries={"torch": "2.13.0+cpu"},
    started_s=1.8e9,
    ended_s=1.8e9 + 1,
    log="a line",
)


def hello(**changes: Any) -> Hello:
    full = Hello(
        version=1,
        epoch=3,
        incarnation="0123456789abcdef",
        started_s=1.8e9,
        shape=shape(
            "gpu-0",
            labels={"zone": "b"},
            libraries={"python": "3.11"},
            variants=(EngineVariant("llm.generate", "vllm", ("bfloat16",)),),
            builtin_models=("builtin:smollm2",),
        ),
        attempts=(AttemptProgress(ID, "running", 3, 3.0, 9.0, "rows"),),
        ended=(END,),
        instances=(LANE,),
        components=(Component(D, "disk", 100),),
        checkpoints=(Checkpoint(ID, D, 0.5, 100),),
        age_s=60.0,
        replicas=(REPLICA,),
    )
    return msgspec.structs.replace(full, **changes)


def sync(**changes: Any) -> Sync:
    full = Sync(
        seq=1,
        progress=(AttemptProgress(ID, "fetching"),),
        ended=(END,),
        instances=(LANE,),
        components=(Component(D, "device", 100),),
        logs=(LogLine(ID, 1.8e9, "é\0\x1b[0m" * 1000),),
        metrics={"stored_bytes": 1e12, "attempts_out-of-memory": 3.0},
        checkpoints=(Checkpoint(ID, D, 0.5, 100, (D,)),),
    )
    return msgspec.structs.replace(full, **changes)


def test_messages_of_honest_workers_have_no_problem() -> None:
    assert v.problems(hello()) == []
    assert v.problems(sync()) == []
    assert v.problems(Sync(seq=1)) == []


def test_every_problem_of_a_message_is_named_with_its_field() -> None:
    wrong = sync(
        progress=(AttemptProgress("x", "running"), AttemptProgress(ID, "dancing")),
        logs=(LogLine(ID, math.nan, "text"),),
        metrics={"stored_bytes": -1.0},
    )
    assert [p.field for p in v.problems(wrong)] == [
        "metrics['stored_bytes']",
        "progress.attempt_id",
        "progress.phase",
        "logs.time_s",
    ]


@pytest.mark.parametrize(
    "attempt_id",
    ["", "x", f"a/{D}", f"a/{D}/1", f"/{D}/1-1", f"a/{D}/1-", f"a/{D}/-1", f"a/{D}/1-1/x",
     f"a/{D}/1-\u0663", f"a/{'A' * 64}/1-1", f"a/{D}/1-{'9' * 30}", f"a/{D}/1-1."],
)  # fmt: skip
def test_an_invalid_attempt_id_is_named(attempt_id: str) -> None:
    assert v.of_attempt_id(ID) is None
    problem = v.of_attempt_id(attempt_id)
    assert problem is not None
    assert "is not an attempt id" in str(problem)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"price_nanousd_per_hour": -1}, "shape.price_nanousd_per_hour"),
        ({"price_nanousd_per_hour": 2**63}, "shape.price_nanousd_per_hour"),
        ({"device_memory_mib": -1}, "shape.device_memory_mib"),
        ({"devices": 0}, "shape.devices"),
        ({"devices": 2**40}, "shape.devices"),
        ({"cpus": -1}, "shape.cpus"),
        ({"power_w": math.nan}, "shape.power_w"),
        ({"name": ""}, "shape.name"),
        ({"name": "two\nlines"}, "shape.name"),
        ({"name": "x" * 300}, "shape.name"),
        ({"pool": "\0"}, "shape.pool"),
        ({"device_class": "x" * 300}, "shape.device_class"),
        ({"labels": {str(n): "" for n in range(5000)}}, "shape.labels"),
        ({"labels": {"a": "x" * 5000}}, "shape.labels['a']"),
        ({"engines": {"test.noop": (-1, 1)}}, "shape.engines['test.noop']"),
        ({"engines": {str(n): (1, 1) for n in range(5000)}}, "shape.engines"),
        ({"variants": (EngineVariant("x" * 300),)}, "shape.variants"),
        ({"builtin_models": ("",)}, "shape.builtin_models"),
    ],
)
def test_an_invalid_worker_shape_is_named(changes: dict[str, Any], field: str) -> None:
    problem = v.of_hello(hello(shape=shape(**{"name": "gpu-0", **changes})))
    assert problem is not None
    assert problem.field == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"age_s": -1.0}, "age_s"),
        ({"age_s": 1e12}, "age_s"),
        ({"started_s": math.inf}, "started_s"),
        ({"incarnation": ""}, "incarnation"),
        ({"instances": (msgspec.structs.replace(LANE, state="odd"),)}, "lanes[0].state"),
        ({"instances": (LANE, msgspec.structs.replace(LANE, load_s=math.nan))}, "lanes[1].load_s"),
        ({"instances": (msgspec.structs.replace(LANE, silent_s=1e300),)}, "lanes[0].silent_s"),
        ({"instances": (LANE,) * 5000}, "instances"),
        ({"components": (Component(D, "moon", 1),)}, "components[0].tier"),
        ({"components": (Component(Digest("../x"), "disk", 1),)}, "components[0].digest"),
        ({"components": (Component(D, "disk", -1),)}, "components[0].size_bytes"),
        ({"replicas": (ServingReplicaState("", "ready", signature=D),)}, "replicas[0].replica_id"),
        ({"replicas": (ServingReplicaState("r", "up", signature=D),)}, "replicas[0].state"),
        (
            {"replicas": (ServingReplicaState("r", "failed", "a\nb", signature=D),)},
            "replicas[0].reason",
        ),
        (
            {"replicas": (ServingReplicaState("r", "failed", "x" * 254, signature=D),)},
            "replicas[0].reason",
        ),
        (
            {"replicas": (ServingReplicaState("r", "ready", calls=-1, signature=D),)},
            "replicas[0].calls",
        ),
        (
            {"replicas": (ServingReplicaState("r", "ready", units=10**16, signature=D),)},
            "replicas[0].units",
        ),
        ({"replicas": (ServingReplicaState("r", "ready"),)}, "replicas[0].signature"),
        (
            {"replicas": (ServingReplicaState("r", "ready", signature=D, memory_mib=-1),)},
            "replicas[0].memory_mib",
        ),
        ({"attempts": (AttemptProgress(ID, "running"),) * 70_000}, "attempts"),
    ],
)
def test_an_invalid_field_of_a_hello_is_named(changes: dict[str, Any], field: str) -> None:
    problem = v.of_hello(hello(**changes))
    assert problem is not None
    assert problem.field == field


def with_manifest(**changes: Any) -> AttemptEnd:
    chunk = msgspec.structs.replace(ChunkRef(D, D, 1, 9), **changes)
    manifest = Manifest(Schema(), (chunk, ChunkRef(D, D, 5, 9)))
    made = Artifact("dataset", dataset_digest(manifest), D, 9, manifest.row_count, manifest)
    return msgspec.structs.replace(END, outputs={"rows": made})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"rows": Digest("x")}, "chunks[0].rows"),
        ({"blob": Digest("../../x")}, "chunks[0].blob"),
        ({"count": -1}, "chunks[0].count"),
        ({"bytes": 2**63}, "chunks[0].bytes"),
    ],
)
def test_an_invalid_chunk_is_named(changes: dict[str, Any], field: str) -> None:
    assert v.of_end(with_manifest()) is None
    problem = v.of_end(with_manifest(**changes))
    assert problem is not None
    assert field in problem.field


def test_a_manifest_of_another_data_set_is_named() -> None:
    rows = END.outputs["rows"]
    for changes, field in (
        ({"digest": D}, "digest"),
        ({"rows": 3}, "rows"),
        ({"manifest": Manifest(Schema(), format=9)}, "manifest"),
        ({"value": {"a": 1}}, "manifest"),
    ):
        made = msgspec.structs.replace(rows, **changes)
        problem = v.of_end(msgspec.structs.replace(END, outputs={"rows": made}))
        assert problem is not None
        assert problem.field == f"outputs['rows'].{field}"


def test_the_content_of_a_blob_has_its_digest() -> None:
    data = b"content"
    digest = digest_bytes(data)
    assert v.of_end(msgspec.structs.replace(END, inline={digest: data})) is None
    assert v.of_end(msgspec.structs.replace(END, inline={digest: b"another"})) is not None


@pytest.mark.parametrize("kind", ["metrics", "blob"])
def test_metrics_and_blobs_have_the_identity_of_their_kind_and_bytes(kind: str) -> None:
    honest = content_artifact(kind, D, 1)
    other = content_artifact("blob" if kind == "metrics" else "metrics", D, 1)
    for digest, is_honest in ((honest.digest, True), (other.digest, False), (D, False)):
        claimed = msgspec.structs.replace(honest, digest=digest)
        found = v.of_end(msgspec.structs.replace(END, outputs={"out": claimed}))
        assert (found is None) is is_honest, found


def test_a_failure_needs_a_known_kind() -> None:
    for kind, known in (("engine", True), ("Engine", False), ("", False)):
        end = msgspec.structs.replace(END, failure=FailureReport(kind, "it failed"))
        assert (v.of_end(end) is None) is known


def test_a_problem_quotes_little_of_the_message() -> None:
    odd = content_artifact("metrics", D, 1, {"k" * 10**6: math.nan})
    long = "x" * 10**6
    for end in (
        msgspec.structs.replace(END, outputs={"metrics": odd}),
        msgspec.structs.replace(END, outputs={long: METRICS}),
        msgspec.structs.replace(END, inline={Digest(long): b""}),
        msgspec.structs.replace(END, libraries={long: ""}),
        msgspec.structs.replace(END, failure=FailureReport(long, "it failed")),
    ):
        problem = v.of_end(end)
        assert problem is not None
        assert len(str(problem)) < 500
