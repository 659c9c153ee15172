"""Inputs of services: rows in the document, uploaded files, and what is refused with its remedy."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from tests.flowmesh_control.fabric import Fabric, control_plane

from flowmesh_core.protocol.results import Artifact

ROWS = [{"text": "one", "embedding": [0.8, 0.6]}, {"text": "two", "embedding": [0.6, 0.8]}]
CODE = "def nearest(batch):\n    return [{'embedding': [1.0, 0.0]} for _ in batch]\n"


def document(name: str = "find", **corpus: Any) -> dict[str, Any]:
    spec = {
        "inputs": {"texts": corpus},
        "components": {
            "query": {"python": {"code": CODE, "function": "nearest"}},
            "search": {"uses": "retrieve.topk", "inputs": {"corpus": "inputs.texts"}},
        },
        "stages": [
            {"name": "vector", "component": "query", "inputs": {"text": "request.text"}},
            {"name": "hits", "component": "search", "inputs": {"rows": "vector"}, "with": {"k": 1}},
        ],
        "reply": {"found": "hits.found"},
    }
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": spec,
    }


@pytest.fixture
async def fabric(tmp_path: Path) -> AsyncIterator[Fabric]:
    control = control_plane(tmp_path)
    await control.start()
    async with ClientSession() as http:
        yield Fabric(tmp_path, control, http)
    await control.stop()


async def corpus_of(fabric: Fabric, name: str) -> Artifact:
    registry = fabric.control.services.registry
    async with asyncio.timeout(30):
        while (release := registry.get("team-a", name).release) is None:
            await registry.resolve()
    (search,) = [c for c in release.components if c.plan.name == "search"]
    return search.models["corpus"]


async def test_rows_of_a_document_are_those_of_a_file(fabric: Fabric) -> None:
    await fabric.call("POST", "/v1/services", body={"document": document("rows", rows=ROWS)})
    lines = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    path = "/v1/datasets?namespace=team-a&name=texts.jsonl"
    stored = await fabric.call("POST", path, data=lines, status=201)
    wanted = {"document": document("file", dataset="./texts.jsonl")}
    wanted["uploads"] = {"texts": stored["reference"]}
    await fabric.call("POST", "/v1/services", body=wanted)
    by_reference = {"document": document("reference", dataset=stored["reference"])}
    await fabric.call("POST", "/v1/services", body=by_reference)
    found = [await corpus_of(fabric, name) for name in ("rows", "file", "reference")]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("corpus", "place", "text"),
    [
        ({"dataset": "./texts.jsonl"}, "dataset", "only fmesh uploads files"),
        ({"rows": [{"a": 1}, {"a": "x"}]}, "rows", "a"),
        (
            {"configMap": {"name": "m", "key": "t.jsonl"}},
            "configMap",
            "services read no ConfigMaps",
        ),
    ],
)
async def test_what_cannot_be_read_is_named_with_a_remedy(
    fabric: Fabric, corpus: dict[str, Any], place: str, text: str
) -> None:
    wanted = {"document": document(**corpus)}
    answer = await fabric.call("POST", "/v1/services", body=wanted, status=422)
    (problem,) = answer["error"]["problems"]
    assert problem["path"] == f"spec.inputs.texts.{place}"
    assert text in problem["message"]
