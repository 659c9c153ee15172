"""Attacker: T2, a tenant with a token of the API and rights in its own namespace only.

Action: hides another namespace where the check reads one place and admission might read another.
Must not happen: a run, a plan or an upload is made in the other namespace.
"""

from pathlib import Path
from typing import Any

from tests.attacks.tenants import ATTACKER, OWNER, SPEC, Tenants, tenants
from tests.flowmesh_control.fabric import workflow

THEIRS, OWN = workflow("w", SPEC, "team-a"), workflow("w", SPEC, "team-b")
ODD: tuple[Any, ...] = (
    "../team-a", "team-a/", "team-a\n", " team-a", "TEAM-A", "team-a\x00", "team\u2010a", 5,
    ["team-a"], {"name": "team-a"}, True,
)  # fmt: skip


def twice(first: str, second: str) -> bytes:
    """A body with two of the same key, of which parsers choose differently."""
    body = (
        b'{"document":{"apiVersion":"flowmesh.dev/v1alpha1","kind":"FlowMeshWorkflow","metadata":'
        b'{"name":"w","namespace":"%s","namespace":"%s"},'
        b'"spec":{"steps":[{"name":"one","uses":"test.noop"}]}},"resume":false}'
    )
    return body % (first.encode(), second.encode())


async def posted(fabric: Tenants, path: str, body: Any) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {ATTACKER}-token"}
    sent = {"data": body} if isinstance(body, bytes) else {"json": body}
    async with fabric.http.post(fabric.control.url + path, headers=headers, **sent) as answer:
        return answer.status, await answer.json()


async def test_no_run_comes_into_a_namespace_without_rights(tmp_path: Path) -> None:
    async with tenants(tmp_path) as fabric:
        bodies: list[Any] = [
            {"document": THEIRS},
            {"document": OWN, "namespace": "team-a"},
            {"document": THEIRS, "namespace": "team-a"},
            {"document": {**THEIRS, "namespace": "team-b"}},
            {"document": {**THEIRS, "metadata": {**THEIRS["metadata"], "Namespace": "team-b"}}},
            {"document": THEIRS, "labels": {"namespace": "team-b"}},
            {"document": {**OWN, "metadata": {"name": "w"}}},  # the namespace default
        ]
        for odd in ODD:
            metadata = {**OWN["metadata"], "namespace": odd}
            bodies.append({"document": {**OWN, "metadata": metadata}})
            bodies.append({"document": OWN, "namespace": odd})
        for path in ("/v1/runs", "/v1/plan"):
            for body in bodies:
                status, told = await posted(fabric, path, body)
                assert status in (400, 403, 422), (path, body, told)
            # What is checked is what is taken, whichever of two keys that is.
            for given in (("team-a", "team-b"), ("team-b", "team-a")):
                status, told = await posted(fabric, path, twice(*given))
                assert status == 403 or told.get("namespace") in ("team-b", None), told
        runs = await fabric.ask(OWNER, "GET", "/v1/runs")
        assert runs == []


async def test_the_namespace_of_the_request_stands_over_the_document_s(tmp_path: Path) -> None:
    async with tenants(tmp_path) as fabric:
        body = {"document": THEIRS, "namespace": "team-b", "resume": False}
        status, accepted = await posted(fabric, "/v1/runs", body)
        assert (status, accepted["namespace"]) == (201, "team-b")
        status, accepted = await posted(fabric, "/v1/runs", {"document": OWN, "resume": False})
        assert (status, accepted["namespace"]) == (201, "team-b")
        assert await fabric.ask(OWNER, "GET", "/v1/runs") == []
