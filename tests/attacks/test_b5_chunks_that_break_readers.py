"""Attacker: T3, two workers: one makes rows that a shared step needs, the other reads them.
Action: the first stores a chunk that is no table of the schema; the second reports that it is not
what its identity says, so that the control plane reads it too.
Must not happen: the control plane ends, or the step is not made again.
"""

import io
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.attacks.by_hand import HandWorker, Place, end_of, place, until
from tests.flowmesh_control.derived_work import engine, submit, upload
from tests.flowmesh_control.fabric import machine_of

from flowmesh_core.dataset import Manifest, encode_manifest
from flowmesh_core.errors import BY_IDENTITY
from flowmesh_core.identity import canonical_bytes, digest_bytes
from flowmesh_core.machine.step_results import dataset_artifact, metrics_artifact
from flowmesh_core.protocol.messages import Assignment, AttemptEnd, FailureReport
from flowmesh_store.datasets import as_single_chunk

ROWS = [{"text": "a"}, {"text": "b"}]
UPLOADED = b'{"text":"a"}\n{"text":"b"}\n'
DOUBLE = {"query": "select text from rows"}
STEPS: list[dict[str, Any]] = [
    {"name": "map", "uses": "test.map", "inputs": {"rows": "inputs.data"}},
    {"name": "read", "uses": "data.sql", "inputs": {"rows": "map.rows"}, "with": DOUBLE},
]


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def twice() -> bytes:
    return parquet(pa.Table.from_arrays([pa.array(["a", "b"])] * 2, names=["text", "text"]))


def broken() -> bytes:
    """A file with an intact footer whose only page is not."""
    data = parquet(pa.table({"text": pa.array(["a", "b"])}))
    start, size = 4, 40
    return data[:start] + b"\xff" * size + data[start + size :]


def forged(blob: bytes) -> tuple[Manifest, bytes]:
    """The manifest of the honest rows, whose chunk is in another blob."""
    honest, _ = as_single_chunk(ROWS)
    chunk = msgspec.structs.replace(honest.chunks[0], blob=digest_bytes(blob), bytes=len(blob))
    return Manifest(honest.schema, (chunk,)), blob


def made(assignment: Assignment, manifest: Manifest, blob: bytes) -> AttemptEnd:
    rows, counted = dataset_artifact(manifest), metrics_artifact({"count": 2})
    return msgspec.structs.replace(
        end_of(assignment.attempt_id, assignment.action_id),
        outputs={"rows": rows, "metrics": counted},
        inline={
            counted.blob: canonical_bytes(counted.value),
            rows.blob: encode_manifest(manifest),
            digest_bytes(blob): blob,
        },
        token=assignment.token,
    )


async def given_next(worker: HandWorker, known: set[str]) -> Assignment:
    await until(lambda: worker.assigned.keys() - known)
    [name] = worker.assigned.keys() - known
    known.add(name)
    return worker.assigned[name]


async def offering(there: Place, name: str, uses: str, pool: str = "good") -> HandWorker:
    return await there.join(name, pool, shape={"engines": {uses: engine(uses)}})


@pytest.mark.parametrize("content", [twice, broken])
async def test_the_control_plane_reads_such_a_chunk_and_has_it_made_again(content: Any) -> None:
    async with place() as there:
        maker, reader = (
            await offering(there, "maker", "test.map"),
            await offering(there, "reader", "data.sql", "good-too"),
        )
        data = await upload(there, UPLOADED)
        inputs = {"data": {"dataset": data["reference"]}}
        await submit(there, "flow", {"inputs": inputs, "steps": STEPS})
        known: set[str] = set()
        first = await given_next(maker, known)
        await maker.sync(ended=(made(first, *forged(content())),))
        read = await given_next(reader, known)
        blob = digest_bytes(content())
        failure = FailureReport("missing-blob", "not these", detail=blob, reason=BY_IDENTITY)
        end = end_of(read.attempt_id, read.action_id, token=read.token)
        end = msgspec.structs.replace(end, outputs={}, inline={}, failure=failure)
        await reader.sync(ended=(end,))
        state = machine_of(there.control).state
        await until(lambda: state.violations or not there.alive)
        assert there.alive
        assert state.violations == {("good", "good-maker"): 1}
        # The step is made again, and the reader gets the honest rows.
        again = await given_next(maker, known)
        honest, blobs = as_single_chunk(ROWS)
        await maker.sync(ended=(made(again, honest, *blobs.values()),))
        read = await given_next(reader, known)
        assert honest.chunks[0].blob in read.inputs["rows"].artifact.blobs()
