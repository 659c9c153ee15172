"""Attacker: T2, a tenant with a token of the API, who guesses what another tenant holds.

Action: asks for the lineage of digests and references that may be in the store.
Must not happen: the answer for content of another tenant differs from that for content of nobody.
"""

from pathlib import Path

from tests.attacks.tenants import ADMIN, ATTACKER, OWNER, Tenants, tenants
from tests.blob_views import blobs_of

from flowmesh_core.dataset import decode_manifest
from flowmesh_core.identity import digest_bytes

ROWS = b'{"secret": "of team-a"}\n'
VIEWS = (
    "/v1/lineage/{}",
    "/v1/lineage/{}?direction=down",
    "/v1/lineage/{}?namespace=team-a",
    "/v1/lineage/{}?namespace=team-b",
    "/v1/lineage/{}/rows",
)


def kinds(reference: str) -> list[str]:
    """Other forms of a reference that its owner was never given."""
    _, kind, rest = reference.split(":")
    digest = rest.partition(".")[0]
    forged = f"{digest}.00{'0' * 32}"
    return [f"cas:{k}:{r}" for k in (kind, "model", "blob") for r in (rest, forged)]


async def told(fabric: Tenants, view: str, name: str) -> tuple[int, bytes, dict[str, str]]:
    """The attacker's answer without what was asked for, which it may repeat, and without time."""
    url = fabric.control.url + view.format(name)
    headers = {"Authorization": f"Bearer {ATTACKER}-token"}
    async with fabric.http.get(url, headers=headers) as response:
        answer = await response.read()
        shown_headers = {k: v for k, v in response.headers.items() if k != "Date"}
    for shown in (name, f"{name[:24]}", name[:12]):
        answer = answer.replace(shown.encode(), b"ASKED")
    assert {"Content-Type", "Content-Length"} <= shown_headers.keys()
    return response.status, answer, shown_headers


async def test_lineage_does_not_reveal_whether_another_tenants_content_exists(
    tmp_path: Path,
) -> None:
    async with tenants(tmp_path) as fabric:
        blobs = blobs_of(fabric.control.services.store)
        stored = await fabric.ask(
            OWNER, "POST", "/v1/datasets?namespace=team-a", data=ROWS, status=201
        )
        reference, identity = stored["reference"], stored["digest"]
        manifest = reference.rpartition(":")[2].partition(".")[0]
        [chunk] = decode_manifest(await blobs.get(manifest)).chunks
        absent = digest_bytes(b"of nobody")
        nobodys = reference.replace(manifest, absent)
        pairs = [(d, absent) for d in (identity, manifest, chunk.blob, chunk.rows)]
        pairs += list(zip(kinds(reference), kinds(nobodys), strict=True))
        for view in VIEWS:
            for there, not_there in pairs:
                found = await told(fabric, view, there)
                assert found == await told(fabric, view, not_there), (view, there)
                assert found[0] == 404
        # Its owner, and who sees all, are told that it is there.
        for who in (OWNER, ADMIN):
            found = await fabric.ask(who, "GET", f"/v1/lineage/{reference}?namespace=team-a")
            assert (found["digest"], found["derivations"]) == (identity, [])
        await fabric.ask(ADMIN, "GET", f"/v1/lineage/{manifest}?namespace=team-a")
        await fabric.ask(ADMIN, "GET", f"/v1/lineage/{absent}?namespace=team-a", status=404)
