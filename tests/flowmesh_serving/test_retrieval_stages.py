"""Searches of a corpus as stages: what they find is what the same search in plain Python finds."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.blob_views import SCOPE, blobs_of
from tests.flowmesh_serving.stack import SALTS, Host, start_host_process, until
from tests.flowmesh_serving.stage_stack import SERVICE, StageStack, python, stage_stack

from flowmesh_core.dataset import dataset_digest, encode_manifest
from flowmesh_core.identity import digest_bytes
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.protocol.serving import ReplicaLoad
from flowmesh_core.serving.call_profile import WARM_AFTER
from flowmesh_store.datasets import rows_to_chunks
from flowmesh_store.store import open_store
from flowmesh_worker.data.components import ComponentCache
from flowmesh_worker.ipc.frames import HostInput, Start
from flowmesh_worker.ipc.hub_frames import AdmitReplica

pytestmark = pytest.mark.slow
ROWS = [
    {"text": f"text {i}", "embedding": [math.cos(i * 0.7), math.sin(i * 0.7), 0.1 * i]}
    for i in range(40)
]
VECTOR = """
import math

def compute(batch):
    return [
        {"embedding": [math.cos(c["x"]), math.sin(c["x"]), 1.0], "odd": [1, "x"]} for c in batch
    ]
"""
SPEC: dict[str, Any] = {
    "inputs": {"vectors": {"dataset": "cas:dataset:" + "0" * 64 + "." + "0" * 34}},
    "components": {
        "embed": python(VECTOR, "compute"),
        "search": {"uses": "retrieve.topk", "inputs": {"corpus": "inputs.vectors"}},
    },
    "stages": [
        {"name": "query", "component": "embed", "inputs": {"x": "request.x"}},
        {
            "name": "hits",
            "component": "search",
            "inputs": {"rows": "query"},
            "with": {"k": 3, "columns": ["text"]},
        },
    ],
    "reply": {"found": "hits.found"},
}


def found_by_hand(x: float, k: int = 3) -> list[str]:
    """Returns the texts that are nearest by cosine, in plain Python."""
    query = [math.cos(x), math.sin(x), 1.0]

    def nearness(row: dict[str, Any]) -> float:
        vector = row["embedding"]
        return sum(a * b for a, b in zip(query, vector, strict=True)) / math.hypot(*vector)

    return [row["text"] for row in sorted(ROWS, key=nearness, reverse=True)[:k]]


async def corpus_of(folder: Path) -> HostInput:
    """Returns the corpus as a worker's cache of components keeps it."""
    store = open_store("memory:")
    manifest, blobs = rows_to_chunks(ROWS)
    data = encode_manifest(manifest)
    view = blobs_of(store)
    for digest, content in {**blobs, digest_bytes(data): data}.items():
        await view.put(digest, content)
    artifact = Artifact("dataset", dataset_digest(manifest), digest_bytes(data))
    cache = ComponentCache(
        store, folder / "components", 1 << 30, in_use=tuple, on_change=lambda: None
    )
    async with cache.pinned(artifact, (SCOPE,)) as path:
        store.close()
        return HostInput("tree", artifact.digest, (str(path),))


async def add_search(stack: StageStack, worker: str) -> None:
    """Adds the replica of the search to a worker."""
    folder = stack.stack.folder / f"{worker}-search"
    corpus = {"corpus": await corpus_of(folder)}
    start = Start(
        "retrieve.topk", "flowmesh_worker.engines.retrieve.topk:TopK", corpus, (), 512, 1, {}, ""
    )
    host: Host = await start_host_process(folder, start)
    stack.hosts[worker, "search"] = host
    replica = f"{SERVICE}/search/r1/{worker}"
    await stack.hubs[worker].admit(
        AdmitReplica(replica, SERVICE, str(host.socket), 0, SALTS, component="search")
    )


@contextlib.asynccontextmanager
async def searching(folder: Path, spec: dict[str, Any] = SPEC) -> AsyncIterator[StageStack]:
    async with stage_stack(folder, spec, {"w1": ["embed"]}) as stack:
        await add_search(stack, "w1")
        staged = stack.stack.router._staged
        await until(lambda: len(staged._replicas.of(SERVICE)) == 2)
        yield stack


async def test_a_search_finds_what_plain_python_finds(tmp_path: Path) -> None:
    async with searching(tmp_path) as stack:
        asked = [{"x": 0.3 * i} for i in range(12)]
        replies = await asyncio.gather(*(stack.ask(request) for request in asked))
        for request, (status, body) in zip(asked, replies, strict=True):
            assert status == 200, body
            assert [row["text"] for row in body["found"]] == found_by_hand(request["x"])
            scores = [row["score"] for row in body["found"]]
            assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("inputs", "params", "problem"),
    [
        ({"rows": "query.odd"}, {}, "expected finite numbers"),
        ({"rows": "request"}, {}, "expected an object with a list of numbers in 'embedding'"),
        ({"rows": "query"}, {"columns": ["txt"]}, "the corpus has no 'txt'; it has"),
        ({"rows": "request.short"}, {}, "embed both with one model"),
        ({"rows": "query"}, {"corpusVector": "text"}, "column 'text'"),
    ],
)
async def test_a_search_that_cannot_be_made_is_an_error_of_its_request_alone(
    tmp_path: Path, inputs: dict[str, str], params: dict[str, Any], problem: str
) -> None:
    query, hits = SPEC["stages"]
    wrong = {**hits, "name": "wrong", "inputs": inputs, "with": {**hits["with"], **params}}
    reply = {"found": "hits.found", "wrong": "wrong.found"}
    spec = {**SPEC, "stages": [query, hits, wrong], "reply": reply}
    async with searching(tmp_path, spec) as stack:
        status, body = await stack.ask({"x": 1.0, "short": [1.0]})
        assert status == 400
        assert problem in body["error"]["message"]
        assert "(stage wrong)" in body["error"]["message"]


async def test_searches_are_measured_by_their_calls(tmp_path: Path) -> None:
    async with searching(tmp_path) as stack:
        replica = f"{SERVICE}/search/r1/w1"
        staged = stack.stack.router._staged

        def search() -> ReplicaLoad:
            return staged._replicas.of(SERVICE)[replica].load

        assert search().sizes == ()
        for x in range(WARM_AFTER + 2):
            assert (await stack.ask({"x": 0.1 * x}))[0] == 200
        await until(lambda: search().sizes == (1,))
        assert 0 < search().seconds[0] < 1
        assert search().cap == search().calls_max
