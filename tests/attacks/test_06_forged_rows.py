"""Attacker: T2 with T3, a tenant of a group and a worker that runs one of its steps.
Action: the worker reports a data set with the row digests of a member's data and blobs of other
rows, and the tenant runs a step of the member's on it first.
Must not happen: the member gets a result, or anybody a row, that was made of the forged rows.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.attacks.by_hand import HandWorker, end_of, hello_of, until
from tests.attacks.tenants import ATTACKER, NAMESPACES, OWNER, Tenants, tenants
from tests.flowmesh_control.fabric import WORKER_TOKEN, machine_of, workflow

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_core.dataset import Manifest, dataset_digest, encode_manifest
from flowmesh_core.identity import canonical_bytes, digest_bytes
from flowmesh_core.machine.step_results import dataset_artifact, metrics_artifact
from flowmesh_core.protocol.messages import EngineVersion, Welcome, decode_control, encode
from flowmesh_core.protocol.results import Artifact
from flowmesh_store.datasets import rows_to_chunks

pytestmark = pytest.mark.slow

HONEST = [{"id": 1, "v": 10}, {"id": 2, "v": 20}]
FORGED = [{"id": 1, "v": 666}, {"id": 2, "v": 667}]
OF_ATTACKER = [{"id": 3, "v": 30}]
DOUBLE = "select id, v * 2 as w from rows order by id"


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def forged_artifact(*, by_manifest: bool) -> tuple[Artifact, dict[Any, bytes]]:
    """The identity of the honest rows, and blobs of the forged ones.

    Args:
        by_manifest: whether the forged manifest is only in its blob, where nobody compares it with
            the identity that the report claims.
    """
    honest, _ = rows_to_chunks(HONEST)
    other, blobs = rows_to_chunks(FORGED)
    if by_manifest:
        encoded = encode_manifest(other)
        blob = digest_bytes(encoded)
        artifact = Artifact("dataset", dataset_digest(honest), blob, other.blob_bytes, 2)
        return artifact, {**blobs, blob: encoded}
    chunks = [
        msgspec.structs.replace(fake, rows=real.rows)
        for real, fake in zip(honest.chunks, other.chunks, strict=True)
    ]
    manifest = Manifest(honest.schema, tuple(chunks))
    artifact = dataset_artifact(manifest)
    return artifact, {**blobs, artifact.blob: encode_manifest(manifest)}


@asynccontextmanager
async def hostile_worker(fabric: Tenants) -> AsyncIterator[HandWorker]:
    """A worker of the same pool that offers nothing but ``test.map``."""
    headers = {"Authorization": f"Bearer {WORKER_TOKEN}"}
    url = fabric.control.url.replace("http", "ws", 1) + "/worker"
    async with fabric.http.ws_connect(url, max_msg_size=0, headers=headers) as socket:
        hello = hello_of("hostile", "local", shape={"engines": {"test.map": EngineVersion(1, 1)}})
        await socket.send_bytes(encode(hello))
        answer = decode_control((await socket.receive()).data)
        assert isinstance(answer, Welcome)
        yield HandWorker(socket, answer)


async def forge(fabric: Tenants, artifact: Artifact, inline: dict[Any, bytes]) -> None:
    """Ends the first attempt with this artifact as its rows, and leaves."""
    async with hostile_worker(fabric) as worker:
        await worker.sync()
        assignment = (await told(worker, "assign"))[0]
        counted = metrics_artifact({"count": 2})
        end = msgspec.structs.replace(
            end_of(assignment.attempt_id, assignment.action_id),
            outputs={"rows": artifact, "metrics": counted},
            inline={**inline, counted.blob: canonical_bytes(counted.value)},
            token=assignment.token,
        )
        await worker.sync(ended=(end,))
        await told(worker, "acknowledged")
        await worker.sync(goodbye=True)


async def told(worker: HandWorker, what: str) -> Any:
    """The next message of the control plane that has this."""
    while True:
        message = decode_control((await worker.socket.receive()).data)
        if found := getattr(message, what):
            return found


async def submit(fabric: Tenants, who: str, rows: list[dict[str, Any]], *, mapped: bool) -> str:
    """Doubles uploaded rows, which the attacker first sends through the forging worker."""
    namespace = NAMESPACES[who]
    stored = await fabric.ask(
        who, "POST", f"/v1/datasets?namespace={namespace}", data=jsonl(rows), status=201
    )
    double = {"name": "double", "uses": "data.sql", "with": {"query": DOUBLE}}
    steps: list[dict[str, Any]] = [{**double, "inputs": {"rows": "inputs.data"}}]
    if mapped:
        steps = [
            {"name": "map", "uses": "test.map", "inputs": {"rows": "inputs.data"}},
            {**double, "inputs": {"rows": "map.rows"}},
        ]
    outputs = {"out": "double.rows", **({"mapped": "map.rows"} if mapped else {})}
    spec = {"inputs": {"data": {"dataset": "./x.jsonl"}}, "steps": steps, "outputs": outputs}
    document = workflow("double", spec, namespace)
    return await fabric.submit(document, uploads={"data": stored["reference"]})


async def output(fabric: Tenants, who: str, uid: str, name: str = "out") -> list[dict[str, Any]]:
    data = await fabric.ask(who, "GET", f"/v1/runs/{uid}/outputs/{name}")
    return [msgspec.json.decode(line) for line in data.splitlines()]


def violations(fabric: Tenants) -> dict[Any, int]:
    return machine_of(fabric.control).state.violations


@pytest.mark.parametrize("by_manifest", [False, True], ids=["rows", "manifest"])
async def test_forged_rows_poison_no_result_of_a_group(tmp_path: Path, by_manifest: bool) -> None:
    async with tenants(tmp_path) as fabric:
        group = CachePolicy("g", Sharing.GROUP, "g", tuple(NAMESPACES.values()))
        await fabric.control.services.policies.put(group)
        forged = await submit(fabric, ATTACKER, OF_ATTACKER, mapped=True)
        await forge(fabric, *forged_artifact(by_manifest=by_manifest))
        fabric.worker("local-honest")
        assert (await fabric.ended(forged)).phase == "Succeeded"
        uid = await submit(fabric, OWNER, HONEST, mapped=False)
        assert (await fabric.ended(uid)).phase == "Succeeded"
        assert await output(fabric, OWNER, uid) == [{"id": 1, "w": 20}, {"id": 2, "w": 40}]
        # The honest worker found the forgery, and the step that was forged ran there again.
        assert await output(fabric, ATTACKER, forged) == [{"id": 3, "w": 60}]
        [mapped] = await output(fabric, ATTACKER, forged, "mapped")
        assert (mapped["id"], mapped["v"]) == (3, 30)
        # The control plane compared them too, before it counted this against the worker.
        await until(lambda: violations(fabric))
        assert violations(fabric) == {("local", "local-hostile"): 1}


async def test_forged_rows_are_not_downloaded(tmp_path: Path) -> None:
    async with tenants(tmp_path) as fabric:
        forged = await submit(fabric, ATTACKER, OF_ATTACKER, mapped=True)
        await forge(fabric, *forged_artifact(by_manifest=False))
        await fabric.ask(ATTACKER, "POST", f"/v1/runs/{forged}/cancel")
        await fabric.ended(forged)
        code, answer = await fabric.answer(ATTACKER, f"/v1/runs/{forged}/outputs/mapped")
        assert code >= 400, answer
        assert b"666" not in answer
        assert b"is damaged in the store" in answer
