"""Attacker: T2, a tenant with a token of the API, who knows digests of another tenant's rows.

Action: publishes metrics shaped like a tree manifest that names them, and reads these as a model.
Must not happen: any answer holds the other tenant's rows, or a run takes the metrics for a model.
"""

from pathlib import Path

import pytest
from tests.attacks.forged_metrics import publish, read_as
from tests.attacks.tenants import ATTACKER, OWNER, tenants
from tests.blob_views import blobs_of

from flowmesh_core.dataset import decode_manifest

pytestmark = pytest.mark.slow

ROWS = b'{"secret": "of team-a"}\n'


async def test_metrics_shaped_like_a_tree_are_not_read_as_a_model(tmp_path: Path) -> None:
    async with tenants(tmp_path) as fabric:
        fabric.worker("local-w1", "--allow-user-code")
        blobs = blobs_of(fabric.control.services.store)
        stored = await fabric.ask(
            OWNER, "POST", "/v1/datasets?namespace=team-a", data=ROWS, status=201
        )
        manifest = stored["reference"].rpartition(":")[2].partition(".")[0]
        [chunk] = decode_manifest(await blobs.get(manifest)).chunks
        named = [("chunk", chunk.blob, chunk.bytes), ("manifest", manifest, 1)]
        files = [{"path": p, "digest": d, "bytes": n} for p, d, n in named]
        forged = await publish(fabric, {"kind": "tree", "files": files})
        wanted = [await blobs.get(manifest), await blobs.get(chunk.blob)]
        for status, answer in await read_as(fabric, "model", forged):
            assert status in (400, 403, 422), answer
            assert not [data for data in wanted if data in answer]
        # Their owners read both.
        path = f"/v1/content?reference={forged}&namespace=team-b"
        assert await fabric.ask(ATTACKER, "GET", path) == {"kind": "tree", "files": files}
        path = f"/v1/content?reference={stored['reference']}&namespace=team-a"
        assert await fabric.ask(OWNER, "GET", path) == b'{"secret":"of team-a"}\n'
