"""Weights that can never fit are told before they are fetched."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.blob_views import SCOPE, blobs_of

from flowmesh_core.identity import tree_identity
from flowmesh_core.protocol.messages import Assignment, InputRef
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest
from flowmesh_store.store import open_store
from flowmesh_store.tree import read_tree, store_tree
from flowmesh_worker.data.components import ComponentCache
from flowmesh_worker.data.weights_check import weights_failure

MIB = 1024 * 1024
A = Digest("a" * 64)


class Fabric:
    """A store with a model of 3 MiB of weights, and a worker's cache beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = open_store("memory:")
        self.blobs = blobs_of(self.store)
        self.cache = ComponentCache(
            self.store, path / "cache", 100 * MIB, in_use=list, on_change=lambda: None
        )

    async def model(self, **config: Any) -> Artifact:
        """A model whose weights are not in the store: who reads them fails."""
        directory = self.path / f"model-{len(list(self.path.iterdir()))}"
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps(config))
        (directory / "model.safetensors").write_bytes(bytes(3 * MIB))
        tree = await store_tree(self.blobs, directory)
        (weights,) = (f.digest for f in tree.files if f.path == "model.safetensors")
        await self.store.sweepable_blobs.delete(SCOPE, weights, older_than_s=0.0)
        return Artifact("model", tree_identity("model", tree.files), tree.digest, tree.size_bytes)

    async def said(self, model: Artifact, engine: str = "llm.generate", **changes: Any) -> str:
        given: dict[str, Any] = {"memory_mib": 2, "fields": {}, **changes}
        assignment = Assignment(
            attempt_id="a",
            action_id=A,
            signature=A,
            engine=engine,
            contract=1,
            implementation=1,
            params={},
            inputs={"model": InputRef(model)},
            components=("model",),
            **given,
        )
        failure = await weights_failure(assignment, self.blobs, self.cache)
        return "" if failure is None else f"{failure.kind}: {failure.message}"


@pytest.fixture
def fabric(tmp_path: Path) -> Fabric:
    return Fabric(tmp_path)


async def test_weights_larger_than_the_memory_are_reported_before_they_are_fetched(
    fabric: Fabric,
) -> None:
    model = await fabric.model(torch_dtype="bfloat16")
    assert await fabric.said(model) == (
        "out-of-memory: the weights need 3 MiB; llm.generate may use 2 MiB"
    )
    assert await fabric.said(model, memory_mib=3) == ""
    assert await fabric.said(model, tensor_parallel=2) == "", "two devices hold twice as much"


async def test_the_dtype_in_which_weights_are_loaded_counts(fabric: Fabric) -> None:
    half, single = await fabric.model(torch_dtype="bfloat16"), await fabric.model(dtype="float32")
    to_single: dict[str, Any] = {"fields": {"dtype": "float32"}}
    to_half: dict[str, Any] = {"fields": {"dtype": "bfloat16"}}
    assert "need 6 MiB" in await fabric.said(half, memory_mib=5, **to_single)
    assert await fabric.said(single, **to_half) == ""
    assert "need 3 MiB" in await fabric.said(single)


async def test_the_weights_check_does_not_apply_to_other_engines(fabric: Fabric) -> None:
    model = await fabric.model(torch_dtype="bfloat16")
    assert await fabric.said(model, "train.sft") == "", "it may load them in 8 bits"


async def test_an_unreadable_model_is_left_to_the_fetch(fabric: Fabric) -> None:
    model = await fabric.model(torch_dtype="bfloat16")
    (config,) = (
        f.digest for f in (await read_tree(fabric.blobs, model.blob)).files if "config" in f.path
    )
    await fabric.store.sweepable_blobs.delete(SCOPE, config, older_than_s=0.0)
    assert await fabric.said(model) == ""
    await fabric.store.sweepable_blobs.delete(SCOPE, model.blob, older_than_s=0.0)
    assert await fabric.said(model) == ""


async def test_an_invalid_model_configuration_is_left_to_the_engine(fabric: Fabric) -> None:
    model = await fabric.model()
    directory = fabric.path / "odd"
    directory.mkdir()
    (directory / "config.json").write_text("[]")
    tree = await store_tree(fabric.blobs, directory)
    odd = Artifact("model", tree_identity("model", tree.files), tree.digest, tree.size_bytes)
    assert await fabric.said(odd) == ""
    assert "need 3 MiB" in await fabric.said(model)
