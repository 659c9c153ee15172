"""Attacker: T2, a tenant with a token of the API, who was given a reference of another tenant.

Action: reads, submits and follows content by that reference, in its own namespace.
Must not happen: any answer holds the other tenant's rows, or a run is admitted with them.
"""

from pathlib import Path
from typing import Any

from tests.attacks.tenants import ATTACKER, NAMESPACES, OWNER, Tenants, tenants
from tests.flowmesh_control.fabric import workflow

ROWS = b'{"secret":"of team-a"}\n'
READS = (
    "/v1/content?reference={reference}&namespace={namespace}",
    "/v1/content?reference={reference}&namespace={namespace}&kind=dataset",
    "/v1/content?reference={reference}&namespace={namespace}&kind=blob",
    "/v1/lineage/{reference}?namespace={namespace}",
    "/v1/lineage/{reference}/rows?namespace={namespace}",
)


def submissions(reference: str, namespace: str) -> list[dict[str, Any]]:
    """Bodies of submissions that take the reference as an input or an upload."""
    spec = {"steps": [{"name": "s", "uses": "test.noop"}], "outputs": {"rows": "inputs.rows"}}
    given = {**spec, "inputs": {"rows": {"dataset": reference}}}
    local = {**spec, "inputs": {"rows": {"dataset": "./rows.jsonl"}}}
    return [
        {"document": workflow("read", given, namespace)},
        {"document": workflow("read", local, namespace), "uploads": {"rows": reference}},
    ]


async def everything(fabric: Tenants, who: str, reference: str) -> list[tuple[int, bytes]]:
    """Returns the answers to every way of using a reference."""
    namespace = NAMESPACES[who]
    answers = [
        await fabric.answer(who, path.format(reference=reference, namespace=namespace))
        for path in READS
    ]
    headers = {"Authorization": f"Bearer {who}-token"}
    for body in submissions(reference, namespace):
        for path in ("/v1/plan", "/v1/runs"):
            url = fabric.control.url + path
            async with fabric.http.post(url, headers=headers, json=body) as response:
                answers.append((response.status, await response.read()))
    return answers


async def test_a_reference_of_another_namespace_opens_nothing(tmp_path: Path) -> None:
    async with tenants(tmp_path) as fabric:
        path = f"/v1/datasets?namespace={NAMESPACES[OWNER]}"
        stored = await fabric.ask(OWNER, "POST", path, data=ROWS, status=201)
        reference = stored["reference"]
        for status, answer in await everything(fabric, ATTACKER, reference):
            assert status in (400, 403, 404, 422), answer
            assert b"of team-a" not in answer
        # Its owner reads it, plans and submits with it.
        statuses = [status for status, _ in await everything(fabric, OWNER, reference)]
        assert (statuses[0], statuses[1]) == (200, 200)
        assert statuses[-4:] == [200, 201, 200, 201]
        content = await fabric.answer(
            OWNER, READS[0].format(reference=reference, namespace=NAMESPACES[OWNER])
        )
        assert content == (200, ROWS)
