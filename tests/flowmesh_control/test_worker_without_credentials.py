"""A worker process that reads and stores through the blob service, without the bucket's account."""

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from tests.attacks.by_hand import TOKENS, place
from tests.blob_views import blobs_of
from tests.flowmesh_control.fabric import API_TOKEN
from tests.served_bucket import s3_server, served

from flowmesh_core.units import Digest

pytestmark = pytest.mark.slow

ROWS = b"".join(b'{"n":%d,"text":"%s"}\n' % (n, b"x" * 40) for n in range(3000))


def worker(gateway: str, store: str, directory: Path) -> "subprocess.Popen[bytes]":
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with (directory / "worker.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "flowmesh_worker", "--gateway", gateway, "--store", store,
             "--name", "good-w1", "--pool", "good", "--cache-dir", str(directory / "cache"),
             "--memory-mib", "2048", "--cpus", "1", "--cpu-only", "--grace", "1"],
            env={**clean, "FLOWMESH_WORKER_TOKEN": TOKENS["good"]},
            stdout=log, stderr=log,
        )  # fmt: skip


async def test_a_run_whose_content_is_large_ends_as_with_an_account(tmp_path: Path) -> None:
    with s3_server(tmp_path / "s3") as server:
        url = server.url("store")
        async with place(store_url=url) as there, served(url, tmp_path) as bucket:
            headers = {"Authorization": f"Bearer {API_TOKEN}"}
            target = f"{there.control.url}/v1/datasets?namespace=team-a"
            async with there.http.post(target, data=ROWS, headers=headers) as response:
                reference = orjson.loads(await response.read())["reference"]
            query = {"query": "select n, text || 'y' as text from t order by n"}
            steps = [
                {"name": "one", "uses": "data.sql", "inputs": {"t": "inputs.t"}, "with": query},
                {"name": "two", "uses": "data.sql", "inputs": {"t": "one.rows"}, "with": query},
            ]
            inputs = {"t": {"dataset": reference}}
            spec = {"steps": steps, "outputs": {"out": "two.rows"}, "inputs": inputs}
            gateway = there.control.url.replace("http", "ws", 1)
            process = worker(gateway, bucket.url, tmp_path)
            try:
                uid = await there.submit("large", spec)
                status = await there.ended(uid)
            finally:
                process.terminate()
                process.wait(30)
            assert status.phase == "Succeeded", (tmp_path / "worker.log").read_text()[-3000:]
            results = await there.published()
            blobs = {Digest(a.blob) for r in results for a in r.outputs.values()}
            assert blobs
            assert await blobs_of(there.store).missing(blobs) == set()
            data = await there.get(f"/v1/runs/{uid}/outputs/out")
            assert data.count(b"yy") == 3000
