"""Attacker: T3, a worker that was given an attempt of T2, and knows digests of another tenant.
Action: reports outputs that name them (chunks, a manifest, a whole data set); T2 downloads these.
Must not happen: any answer to T2 holds the other tenant's rows.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import orjson
import pytest
from tests.attacks.by_hand import HandWorker, Place, place, until
from tests.blob_views import blobs_of
from tests.flowmesh_control.fabric import API_TOKEN, workflow

from flowmesh_control.runs.uploads import dataset_artifact
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.dataset import Manifest, decode_manifest, encode_manifest
from flowmesh_core.protocol.messages import AttemptEnd
from flowmesh_core.protocol.results import Artifact, Usage
from flowmesh_core.sharing import read_reference

pytestmark = pytest.mark.slow

ROWS = b"".join(b'{"secret":"%d of team-a"}\n' % n for n in range(400))
HEADERS = {"Authorization": f"Bearer {API_TOKEN}"}


async def ask(there: Place, method: str, path: str, **more: Any) -> tuple[int, bytes]:
    url = there.control.url + path
    async with there.http.request(method, url, headers=HEADERS, **more) as response:
        return response.status, await response.read()


async def submit(there: Place, number: int) -> str:
    step = {"name": "one", "uses": "data.sql", "inputs": {"t": "inputs.t"}}
    step["with"] = {"query": f"select {number} as n from t"}
    spec = {"steps": [step], "outputs": {"out": "one.rows"}, "inputs": {"t": {"rows": [{"n": 1}]}}}
    document = workflow(f"w{number}", spec, "team-b")
    status, answer = await ask(there, "POST", "/v1/runs", json={"document": document})
    assert status == 201, answer
    return str(orjson.loads(answer)["uid"])


async def report_always(worker: HandWorker, forged: dict[str, Artifact]) -> None:
    """Ends every attempt with the output that was forged for its run."""
    known = set[str]()
    while True:
        await until(lambda: worker.assigned.keys() - known)
        for name in worker.assigned.keys() - known:
            known.add(name)
            one = worker.assigned[name]
            await until(lambda uid=one.run_uids[0]: uid in forged)
            output = forged[one.run_uids[0]]
            usage = Usage(units=1, run_s=0.01)
            end = AttemptEnd(name, one.action_id, {"rows": output}, usage=usage)
            await worker.sync(ended=(end,))


async def forgeries(there: Place, manifest: Manifest) -> Iterable[tuple[Artifact, bytes | None]]:
    """Outputs that name another tenant's content, each with the manifest to put."""
    whole = dataset_artifact(manifest)
    part = Manifest(manifest.schema, manifest.chunks[1:])
    unread = Artifact("dataset", whole.digest, whole.blob, whole.size_bytes, whole.rows)
    return (
        (whole, encode_manifest(manifest)),
        (dataset_artifact(part), encode_manifest(part)),
        (unread, None),
        (unread, encode_manifest(manifest)),
    )


async def test_no_output_gives_a_tenant_rows_that_its_scopes_do_not_have() -> None:
    async with place() as there:
        status, answer = await ask(there, "POST", "/v1/datasets?namespace=team-a", data=ROWS)
        assert status == 201, answer
        reference = orjson.loads(answer)["reference"]
        theirs, own = (blobs_of(there.store, f"ns-{name}") for name in ("team-a", "team-b"))
        manifest = decode_manifest(await theirs.get(read_reference(reference).blob))
        assert len(manifest.chunks) > 1
        contract = load_catalog().newest("data.sql")
        assert contract is not None
        worker = await there.join("w", shape={"engines": {"data.sql": contract.versions}})
        forged: dict[str, Artifact] = {}
        answers = asyncio.create_task(report_always(worker, forged))
        for number, (artifact, data) in enumerate(await forgeries(there, manifest)):
            if data is not None:
                await own.put(artifact.blob, data)
            uid = await submit(there, number)
            forged[uid] = artifact
            ended = await there.ended(uid)
            got = [await ask(there, "GET", f"/v1/runs/{uid}/outputs/out")]
            for output in ended.outputs.values():
                reference_of = output.get("reference")
                path = f"/v1/content?reference={reference_of}&namespace=team-b"
                got += [await ask(there, "GET", path)] if reference_of else []
            got += [await ask(there, "GET", f"/v1/lineage/{artifact.digest}/rows")]
            assert all(b"of team-a" not in body for _, body in got), got
            assert ended.phase == "Failed" or artifact.manifest is None
        answers.cancel()
        # Their owner reads them.
        path = f"/v1/content?reference={reference}&namespace=team-a"
        assert await ask(there, "GET", path) == (200, ROWS)
