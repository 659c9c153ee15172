"""Adapters whose files are damaged, or written by an attacker, are bad input.

Any other error would have their replica loaded again and again.
"""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engines.llm.adapters import LoraTargets

MODULE = "base_model.model.model.layers.0.self_attn.q_proj"
TARGETS = LoraTargets(
    {MODULE.removeprefix("base_model.model."): (8, 8)}, frozenset({"q_proj"}), has_experts=False
)
CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}
TENSORS: dict[str, Any] = {
    f"{MODULE}.lora_A.weight": {"dtype": "F32", "shape": [2, 8], "data_offsets": [0, 64]},
    f"{MODULE}.lora_B.weight": {"dtype": "F32", "shape": [8, 2], "data_offsets": [64, 128]},
}


def adapter(folder: Path, config: str, header: bytes, length: int | None = None) -> Path:
    (folder / "adapter_config.json").write_text(config)
    size = struct.pack("<Q", len(header) if length is None else length)
    (folder / "adapter_model.safetensors").write_bytes(size + header + bytes(128))
    return folder


def with_config(**changes: Any) -> str:
    return json.dumps({**CONFIG, **changes})


def test_a_whole_adapter_is_served(tmp_path: Path) -> None:
    TARGETS.check(adapter(tmp_path, with_config(), json.dumps(TENSORS).encode()))
    TARGETS.check(adapter(tmp_path, with_config(lora_alpha=0.5), json.dumps(TENSORS).encode()))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"{}",
        b'{"x": 1}',
        b'{"x": []}',
        b'{"x": {}}',
        b'{"x": {"shape": 3}}',
        b'{"x": {"shape": ["a"]}}',
        b'{"x": {"shape": [[1]]}}',
        b'{"x": {"shape": [Infinity]}}',
        b"[" * 100_000,
        b"\xff" * 16,
    ],
)
def test_a_header_that_none_is_is_bad_input(tmp_path: Path, header: bytes) -> None:
    with pytest.raises(AttemptError) as caught:
        TARGETS.check(adapter(tmp_path, with_config(), header))
    assert caught.value.failure.kind is FailureKind.BAD_INPUT


@pytest.mark.parametrize("length", [0, 127, 1 << 40, (1 << 64) - 1])
def test_a_header_of_another_length_is_bad_input(tmp_path: Path, length: int) -> None:
    header = json.dumps(TENSORS).encode()
    with pytest.raises(AttemptError, match="safetensors") as caught:
        TARGETS.check(adapter(tmp_path, with_config(), header, length))
    assert caught.value.failure.kind is FailureKind.BAD_INPUT


@pytest.mark.parametrize(
    "config",
    [
        "",
        "[]",
        "null",
        "[" * 100_000,
        with_config(r="8"),
        with_config(r=0),
        with_config(r=65),
        with_config(r=float("nan")),
        with_config(lora_alpha=None),
        with_config(lora_alpha="4"),
        with_config(lora_alpha=float("nan")),
        with_config(lora_alpha=float("inf")),
        with_config(lora_alpha=[4]),
    ],
)
def test_a_configuration_that_none_is_is_bad_input(tmp_path: Path, config: str) -> None:
    with pytest.raises(AttemptError) as caught:
        TARGETS.check(adapter(tmp_path, config, json.dumps(TENSORS).encode()))
    assert caught.value.failure.kind is FailureKind.BAD_INPUT


def test_a_pickled_adapter_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(with_config())
    (tmp_path / "adapter_model.bin").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(AttemptError, match=r"has no adapter_model\.safetensors"):
        TARGETS.check(tmp_path)


@pytest.mark.parametrize("missing", ["A", "B"])
def test_half_of_a_layer_is_bad_input(tmp_path: Path, missing: str) -> None:
    """vLLM ignores a layer without its A, so the answers would be those of the model alone."""
    half = {name: one for name, one in TENSORS.items() if f"lora_{missing}." not in name}
    with pytest.raises(
        AttemptError, match=rf"q_proj\.lora_.\.weight but not .*lora_{missing}"
    ) as caught:
        TARGETS.check(adapter(tmp_path, with_config(), json.dumps(half).encode()))
    assert caught.value.failure.kind is FailureKind.BAD_INPUT
