"""A host is told whether its work carries adapters: an engine must know before it starts."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.blob_views import blobs_of

from flowmesh_core.identity import tree_identity
from flowmesh_core.protocol.messages import InputRef
from flowmesh_core.protocol.results import Artifact
from flowmesh_store.tree import store_tree

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

FIELDS = {"implementation": "vllm", "dtype": "float32", "batchInvariant": True}


def weights(file: Path) -> None:
    """The header of one layer's matrix of 1024 by 1024, without the matrix."""
    layer = {"dtype": "F32", "shape": [1024, 1024], "data_offsets": [0, 0]}
    header = json.dumps({"model.layers.0.mlp.up_proj.weight": layer}).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header)


async def tree(world: "World", kind: str, folder: Path) -> InputRef:
    stored = await store_tree(blobs_of(world.store), folder)
    return InputRef(
        Artifact(kind, tree_identity(kind, stored.files), stored.digest, stored.size_bytes)
    )


async def test_an_engine_reserves_room_for_adapters_only_if_work_uses_them(
    world: "World", tmp_path: Path
) -> None:
    model, adapter = tmp_path / "model", tmp_path / "adapter"
    for folder in (model, adapter):
        folder.mkdir()
    (model / "config.json").write_text(json.dumps({"max_position_embeddings": 64}))
    weights(model / "model.safetensors")
    (adapter / "adapter_config.json").write_text("{}")
    given = {
        "model": await tree(world, "model", model),
        "rows": await world.dataset([{"n": 1}]),
    }
    with_adapter = {**given, "adapter": await tree(world, "adapter", adapter)}
    await world.worker()
    said = []
    for number, inputs in enumerate((given, with_adapter)):
        work = world.assignment(
            "llm.generate",
            params={"prompt": "{{ n }}"},
            inputs=inputs,
            components=tuple(p for p in inputs if p != "rows"),
            signature_params=FIELDS,
            signature=f"{number:064x}",
            memory_mib=32,
        )
        end = await world.gateway.do(work)
        assert end.failure is not None
        said.append(end.failure.message)
    assert "the model needs" in said[0]
    assert "for an adapter" not in said[0]
    assert "for an adapter" in said[1]
