"""``model.import``: fetched files, refused files, and equal bytes for equal addresses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_core.identity import digest_bytes
from flowmesh_worker.engine_api import BlobInput, Work
from flowmesh_worker.engines.models.importing import ModelImport
from flowmesh_worker.engines.models.safe_files import check_model

NO_TENSORS = (2).to_bytes(8, "little") + b"{}"
ROOT = Path(__file__).parents[4]


def work(folder: Path, uri: str, **more: object) -> Work:
    folder.mkdir(exist_ok=True)
    pin = more.pop("pin", None)
    inputs = {"pin": BlobInput("0" * 64, json.dumps(pin).encode())} if pin else {}
    return Work("a", "a", {"uri": uri, "revision": "", **more}, {}, inputs, folder)


async def failure(folder: Path, uri: str, **more: object) -> AttemptError:
    with pytest.raises(AttemptError) as caught:
        await ModelImport().run(work(folder, uri, **more), lambda *_: None)
    assert not (folder / "model").exists()
    return caught.value


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("builtin:smollm2-135m", "did you mean 'smollm2-135m-instruct'"),
        ("builtin:gpt", "the built-in models are smollm2-135m-instruct"),
        ("https://example.org/model.tar", "an https URL is one file"),
        ("gs://bucket/model", "builtin:NAME, hf://ORG/NAME[@REVISION] or s3://BUCKET/DIRECTORY"),
        ("s3:///model", "malformed"),
    ],
)
async def test_an_invalid_model_address_is_refused_with_the_valid_forms(
    tmp_path: Path, uri: str, says: str
) -> None:
    error = await failure(tmp_path, uri)
    assert error.failure.kind is FailureKind.BAD_INPUT
    assert says in str(error)


async def test_without_a_network_a_hub_import_fails_with_the_alternatives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    error = await failure(tmp_path, "hf://org/name", pin={"revision": "abc"})
    assert error.failure.retryable
    assert "hf://org/name@abc: the hub cannot be reached" in str(error)
    assert "builtin:NAME" in error.failure.remedy


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ("pytorch_model.bin", "pickles"),
        ("modeling_evil.py", "not a file that a model may contain"),
        ("sub/weights.pt", "pickles"),
    ],
)
def test_files_that_run_code_are_refused(tmp_path: Path, extra: str, says: str) -> None:
    complete(tmp_path)
    check_model(tmp_path, "./m")
    (tmp_path / extra).parent.mkdir(exist_ok=True)
    (tmp_path / extra).write_bytes(b"x")
    with pytest.raises(AttemptError, match=says):
        check_model(tmp_path, "./m")


@pytest.mark.parametrize("missing", ["model.safetensors", "config.json", "tokenizer.json"])
def test_an_incomplete_model_is_refused_with_what_it_lacks(tmp_path: Path, missing: str) -> None:
    complete(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(AttemptError, match=missing.removeprefix("model")):
        check_model(tmp_path, "./m")


def test_a_link_out_of_the_model_is_refused(tmp_path: Path) -> None:
    complete(tmp_path)
    (tmp_path / "vocab.json").symlink_to("/etc/passwd")
    with pytest.raises(AttemptError, match="not a plain file"):
        check_model(tmp_path, "./m")


def complete(folder: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text("{}")
    (folder / "model.safetensors").write_bytes(NO_TENSORS)


PROGRAM = """
import asyncio, sys
from pathlib import Path
from flowmesh_worker.engine_api import HostSettings, Work
from flowmesh_worker.engines.models.importing import ModelImport

async def main():
    engine, out = ModelImport(), Path(sys.argv[1])
    await engine.load({}, HostSettings((), 4096, 2, {}, out))
    await engine.run(Work("a", "a", {"uri": sys.argv[2]}, {}, {}, out), lambda *_: None)

asyncio.run(main())
"""


# Of transformers 5.23.0; the files in which it writes its version are left out.
FROZEN = {
    "model.safetensors": "c9aff0fe220cc03ae5c28f85c455b01d8845d4f27a636690906cf05680239b5b",
    "tokenizer.json": "2c3df0a7e96ced3cf06bc914683eb485eafde3335a505650f9765258f2492961",
}


@pytest.mark.slow
@pytest.mark.model
def test_the_built_in_model_has_the_same_bytes_everywhere(tmp_path: Path) -> None:
    path = os.pathsep.join(str(ROOT / p) for p in ("api", "core", "store", "worker"))
    made = []
    for offline in ("0", "1"):
        folder = tmp_path / offline
        folder.mkdir()
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(folder), "builtin:smollm2-135m-instruct"],
            check=True,
            env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": offline},
        )
        made.append(digests(folder / "model"))
    assert made[0] == made[1]
    assert {name: made[0][name] for name in FROZEN} == FROZEN
    config = json.loads((tmp_path / "0" / "model" / "config.json").read_text())
    assert (config["dtype"], config["model_type"]) == ("float32", "llama")


def digests(folder: Path) -> dict[str, str]:
    return {f.name: digest_bytes(f.read_bytes()) for f in folder.iterdir()}
