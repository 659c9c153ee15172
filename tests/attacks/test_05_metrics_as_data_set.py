"""Attacker: T2, a tenant with a token of the API, who knows digests of another tenant's rows.

Action: publishes metrics shaped like a data-set manifest that names them, and reads these as rows.
Must not happen: any answer holds the other tenant's rows, or a run takes the metrics for rows.
"""

from pathlib import Path

import orjson
import pytest
from tests.attacks.forged_metrics import publish, read_as
from tests.attacks.tenants import ADMIN, ATTACKER, OWNER, tenants
from tests.blob_views import blobs_of

from flowmesh_core.identity import content_identity
from flowmesh_core.units import Digest

pytestmark = pytest.mark.slow

ROWS = b'{"secret": "of team-a"}\n'


async def test_metrics_shaped_like_a_data_set_are_not_read_as_rows(tmp_path: Path) -> None:
    async with tenants(tmp_path) as fabric:
        fabric.worker("local-w1", "--allow-user-code")
        blobs = blobs_of(fabric.control.services.store)
        stored = await fabric.ask(
            OWNER, "POST", "/v1/datasets?namespace=team-a", data=ROWS, status=201
        )
        manifest = stored["reference"].rpartition(":")[2].partition(".")[0]
        described = orjson.loads(await blobs.get(manifest))
        forged = await publish(fabric, described)
        for status, answer in await read_as(fabric, "dataset", forged):
            assert status in (400, 403, 422), answer
            assert b"of team-a" not in answer
        # Lineage does not take it for a data set either: it tells of the digest that was asked for.
        digest = content_identity("metrics", Digest(forged.rpartition(":")[2].partition(".")[0]))
        for asked in (digest, forged):
            for who in (ATTACKER, ADMIN):
                walk = await fabric.ask(who, "GET", f"/v1/lineage/{asked}?namespace=team-b")
                assert walk["digest"] == digest
                assert [d["step"] for d in walk["derivations"]] == ["forge"]
        # Their owners read both.
        path = f"/v1/content?reference={forged}&namespace=team-b"
        assert await fabric.ask(ATTACKER, "GET", path) == described
        path = f"/v1/content?reference={stored['reference']}&kind=dataset&namespace=team-a"
        assert await fabric.ask(OWNER, "GET", path) == b'{"secret":"of team-a"}\n'
