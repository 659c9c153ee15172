"""Attacker: T5, a model or adapter that a tenant uploads or names in a bucket.

Action: has pickles, code, libraries, or weights whose header lies about their content.
Must not happen: the control plane stores it, an import returns it, or either grows or ends by it.
"""

import io
import json
import pickle
import tarfile
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.one_fabric import fabric_at

from flowmesh_core.errors import AttemptError, FlowMeshError
from flowmesh_store.model_files import HEADER_BYTES_MAX, require_data_only
from flowmesh_worker.engines.models.safe_files import check_model

GROWTH_BYTES_MAX = 64 << 20


class Runs:
    """Its pickle would run a command."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("code of the attacker",))


PICKLE = pickle.dumps(Runs())


def weights(header: Any, content: bytes = b"") -> bytes:
    data = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(data).to_bytes(8, "little") + data + content


def tensor(first: int, last: int, shape: list[Any], dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}


GOOD = weights({"__metadata__": {"format": "pt"}, "a": tensor(0, 8, [2])}, bytes(8))
UNSAFE_NAMES = (
    "pytorch_model.bin", "model.pt", "model.pth", "model.pkl", "model.pickle", "model.ckpt",
    "model.h5", "model.msgpack", "optimizer.pt", "training_args.bin", "modeling_evil.py",
    "sub/configuration_evil.py", "setup.py", "__init__.py", "evil.so", "evil.pyc", "evil.pth",
    "run.sh", "model.PKL", "model.safetensors.bin", "model.safetensors.py", ".gitattributes",
    "tokenizer.json.pkl", "model.gguf", "model.onnx", "weights", "sitecustomize.py",
)  # fmt: skip
BROKEN: dict[str, bytes] = {
    "a pickle by another name": PICKLE,
    "empty": b"",
    "seven bytes": bytes(7),
    "no header": bytes(8),
    "no JSON": weights(b"{"),
    "a list": weights([]),
    "a number": weights(b"1"),
    "deep": weights(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "a length of exabytes": (1 << 63).to_bytes(8, "little") + b"{}",
    "a length beyond the file": weights({})[:8] + b"{",
    "a header of gigabytes": (3 << 30).to_bytes(8, "little") + b"{}" + bytes(64),
    "a tensor that is none": weights({"a": 1}),
    "without a shape": weights({"a": {"dtype": "F32", "data_offsets": [0, 0]}}),
    "a shape of texts": weights({"a": tensor(0, 0, ["x"])}),
    "a negative shape": weights({"a": tensor(0, 8, [-2])}, bytes(8)),
    "a shape beyond the content": weights({"a": tensor(0, 8, [1 << 40])}, bytes(8)),
    "a shape beyond 64 bits": weights({"a": tensor(0, 8, [1 << 62, 1 << 62])}, bytes(8)),
    "offsets beyond the content": weights({"a": tensor(0, 1 << 40, [1 << 38])}, bytes(8)),
    "offsets before it": weights({"a": tensor(-8, 0, [2])}, bytes(8)),
    "offsets backwards": weights({"a": tensor(8, 0, [0])}, bytes(8)),
    "overlapping": weights({"a": tensor(0, 8, [2]), "b": tensor(4, 12, [2])}, bytes(12)),
    "a gap": weights({"a": tensor(0, 8, [2]), "b": tensor(12, 20, [2])}, bytes(20)),
    "more content": weights({"a": tensor(0, 8, [2])}, bytes(8) + PICKLE),
    "offsets that are floats": weights({"a": tensor(0, 8.5, [2])}, bytes(8)),  # type: ignore[arg-type]
}  # fmt: skip


def packed(files: Mapping[str, bytes]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


MODEL = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": GOOD}
ADAPTER = {"adapter_config.json": b"{}", "adapter_model.safetensors": GOOD}


async def test_no_upload_has_a_file_that_runs_code(tmp_path: Path) -> None:
    async with fabric_at(tmp_path) as fabric:
        for kind, honest in (("model", MODEL), ("adapter", ADAPTER)):
            path = f"/v1/trees?namespace=team-a&kind={kind}"
            for name in UNSAFE_NAMES:
                data = packed({**honest, name: PICKLE})
                told = await fabric.call("POST", path, data=data, status=400)
                assert told["error"]["where"] == name, told
                assert "safetensors" in told["error"]["remedy"]
            found = await fabric.call("POST", path, data=packed(honest), status=201)
            assert found["kind"] == kind


async def test_no_upload_has_weights_that_are_none(tmp_path: Path) -> None:
    async with fabric_at(tmp_path) as fabric:
        path = "/v1/trees?namespace=team-a&kind=model"
        for name, content in BROKEN.items():
            data = packed({**MODEL, "sub/more.safetensors": content})
            told = await fabric.call("POST", path, data=data, status=400)
            assert told["error"]["where"] == "sub/more.safetensors", (name, told)
            assert "not a safetensors file" in told["error"]["message"], (name, told)


@pytest.mark.parametrize("name", UNSAFE_NAMES)
def test_no_import_returns_a_file_that_runs_code(name: str, tmp_path: Path) -> None:
    written(tmp_path, MODEL)
    check_model(tmp_path, "s3://bucket/m")
    written(tmp_path, {name: PICKLE})
    with pytest.raises(AttemptError, match="not a file that a model may contain"):
        check_model(tmp_path, "s3://bucket/m")


@pytest.mark.parametrize("name", BROKEN)
def test_no_import_returns_weights_that_are_none(name: str, tmp_path: Path) -> None:
    written(tmp_path, {**MODEL, "sub/more.safetensors": BROKEN[name]})
    with pytest.raises(AttemptError, match=r"sub/more\.safetensors"):
        check_model(tmp_path, "s3://bucket/m")


@pytest.mark.slow
def test_a_header_costs_no_more_than_its_limit(tmp_path: Path) -> None:
    entries = b",".join(b'"%d":{"dtype":"","shape":[],"data_offsets":[0,0]}' % n
                        for n in range(130_000))  # fmt: skip
    header = b"{" + entries + b"}"
    assert 0.8 * HEADER_BYTES_MAX < len(header) < HEADER_BYTES_MAX
    written(tmp_path, {"m.safetensors": weights(header), "large.safetensors": weights(
        b" " * HEADER_BYTES_MAX + b"{}")})  # fmt: skip
    tracemalloc.start()
    try:
        with pytest.raises(FlowMeshError, match="header is larger"):
            require_data_only(tmp_path)
        (tmp_path / "large.safetensors").unlink()
        require_data_only(tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= GROWTH_BYTES_MAX, peak


def written(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
