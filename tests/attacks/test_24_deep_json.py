"""Attacker: T1, a tenant with the right to submit and to upload.
Action: sends JSON nested 100,000 deep, and a little less, in every body and in uploaded files.
Must not happen: an answer of 5xx, or that the control plane ends.
"""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.one_fabric import fabric_at, nothing_compiles_here
from tests.flowmesh_control.fabric import Fabric, workflow

DEEP = (300, 700, 100_000)


def nested(depth: int, kind: str = "list") -> bytes:
    if kind == "list":
        return b"[" * depth + b"]" * depth
    return b'{"a":' * depth + b"1" + b"}" * depth


def document(at: str) -> bytes:
    """A workflow of one step with marks where something deep is to stand."""
    spec: dict[str, Any] = {"steps": [{"name": "a", "uses": "test.map", "with": {}}]}
    spec["inputs"] = {"x": {"rows": [{"a": 1}]}}
    made = workflow("deep", spec)
    if at == "rows":
        spec["inputs"]["x"]["rows"][0]["a"] = "MARK"
    elif at == "with":
        spec["steps"][0]["with"]["x"] = "MARK"
    elif at == "status":
        made["status"] = "MARK"
    elif at == "spec":
        made["spec"] = "MARK"
    else:
        made["metadata"]["labels"] = {"x": "MARK"}
    return json.dumps({"document": made}).encode()


async def post(fabric: Fabric, method: str, path: str, body: bytes) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {fabric.token}"}
    url = fabric.control.url + path
    async with fabric.http.request(method, url, data=body, headers=headers) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize("sandboxed", [False, True], ids=["inline", "sandboxed"])
@pytest.mark.parametrize("path", ["/v1/runs", "/v1/plan"])
async def test_a_deeply_nested_document_is_answered_with_a_client_error(
    tmp_path: Path, path: str, sandboxed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sandboxed:
        nothing_compiles_here(monkeypatch)
    async with fabric_at(tmp_path, sandboxed=sandboxed) as fabric:
        places = product(["rows", "with", "status", "spec", "labels"], ["list", "object"], DEEP)
        for at, kind, depth in places:
            body = document(at).replace(b'"MARK"', nested(depth, kind), 1)
            status, told = await post(fabric, "POST", path, body)
            if status == 200:
                assert (at, path) == ("status", "/v1/plan")  # it is not read
                continue
            assert status in (400, 422), (at, kind, depth, told)
            if depth == DEEP[-1]:
                assert status == 400
                assert "nested too deeply" in told["error"]["message"]
        honest = document("rows").replace(b'"MARK"', nested(20))
        document_of = json.loads(honest)["document"]
        document_of["spec"]["steps"][0] |= {"uses": "test.noop"}
        del document_of["spec"]["steps"][0]["with"]
        status, told = await post(
            fabric, "POST", path, json.dumps({"document": document_of}).encode()
        )
        assert status in (200, 201), told


async def test_every_other_route_refuses_a_deeply_nested_body_too(tmp_path: Path) -> None:
    async with fabric_at(tmp_path) as fabric:
        spec = {"suspend": True, "steps": [{"name": "a", "uses": "test.noop"}]}
        uid = await fabric.submit(workflow("w", spec))
        paths = [("POST", f"/v1/runs/{uid}/{act}") for act in ("amend", "cancel", "audit")]
        deep = b'{"reason": %s, "x": %s}' % (nested(100_000), nested(100_000))
        for method, path in [*paths, ("PUT", "/v1/policies"), ("POST", "/v1/cache/purge")]:
            status, told = await post(fabric, method, path, deep)
            assert status == 400, (path, told)
        status, told = await post(fabric, "POST", f"/v1/runs/{uid}/cancel", b"[1]")
        assert status == 400
        assert "cannot be read" in told["error"]["message"]
        status, told = await post(fabric, "POST", f"/v1/runs/{uid}/cancel", b'{"reason": "mine"}')
        assert (status, told["uid"]) == (200, uid)


async def test_a_deep_file_is_refused_with_its_line(tmp_path: Path) -> None:
    async with fabric_at(tmp_path) as fabric:
        for ending, depth in product(["jsonl", "json"], DEEP):
            row = b'{"a": %s}' % nested(depth)
            body = row if ending == "jsonl" else b"[%s]" % row
            path = f"/v1/datasets?namespace=team-a&name=x.{ending}"
            status, told = await post(fabric, "POST", path, body)
            assert status in (400, 422), told
            assert "nested" in told["error"]["message"], told
            assert status == 400 or depth < DEEP[-1]
            honest = body.replace(nested(depth), nested(20))
            assert (await post(fabric, "POST", path, honest))[0] == 201
