"""Shapes from the headers of weight files, and sizes computed from them."""

import json
from pathlib import Path

import pytest

from flowmesh_core.errors import AttemptError
from flowmesh_worker.engines.train.weight_shapes import (
    elements,
    lora_elements,
    matrix_elements,
    read_shapes,
)

SHAPES = {
    "model.embed_tokens.weight": (100, 8),
    "model.layers.0.self_attn.q_proj.weight": (8, 8),
    "model.layers.0.mlp.up_proj.weight": (16, 8),
    "model.layers.0.input_layernorm.weight": (8,),
}


def written(folder: Path) -> Path:
    header = {n: {"dtype": "F32", "shape": s, "data_offsets": [0, 0]} for n, s in SHAPES.items()}
    data = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    (folder / "model.safetensors").write_bytes(len(data).to_bytes(8, "little") + data)
    return folder


def test_shapes_are_read_without_the_weights(tmp_path: Path) -> None:
    assert read_shapes(written(tmp_path)) == SHAPES


def test_an_invalid_safetensors_file_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"PK\x03\x04 pickled")
    with pytest.raises(AttemptError, match=r"model\.safetensors is not a safetensors"):
        read_shapes(tmp_path)


def test_adapters_apply_to_the_named_matrices_of_the_layers() -> None:
    assert elements(SHAPES) == 800 + 64 + 128 + 8
    assert matrix_elements(SHAPES) == 64 + 128
    assert lora_elements(SHAPES, 4, ("q_proj",)) == 4 * 16
    assert lora_elements(SHAPES, 4, ("all-linear",)) == 4 * (16 + 24)
    assert lora_elements(SHAPES, 4, ()) == 4 * (16 + 24)
