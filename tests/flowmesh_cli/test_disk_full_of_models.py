"""A disk that fills up under a model that is about to be published."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_cli.calling import fmesh
from tests.flowmesh_cli.shared_fabric import SharedFabric, shared_fabric
from tests.flowmesh_cli.test_disk_full import FULL, REMEDY, fill, small_disk
from tests.flowmesh_store.published import published

from flowmesh_cli.exit_codes import ExitCode
from flowmesh_worker.failures import FREE_SPACE

pytestmark = [pytest.mark.nightly, pytest.mark.model]

DISK_MIB = 96
MODEL_BYTES = 8_000_000
LEFT = ((MODEL_BYTES // 2, FREE_SPACE), (MODEL_BYTES * 3 // 2, REMEDY))
"""Too little for the engine to write the model; enough for that, and too little to publish it."""
LLM = Path(__file__).parents[1] / "flowmesh_worker" / "engines" / "llm"
MAKE = """
import sys
from pathlib import Path
import tiny_model
from transformers import AutoConfig, LlamaForCausalLM
folder = Path(sys.argv[1])
folder.mkdir()
tiny_model.write_model(folder)
config = AutoConfig.from_pretrained(folder, hidden_size=256, intermediate_size=1536)
LlamaForCausalLM(config).save_pretrained(folder)
for seed, name in enumerate(("one", "two")):
    shape = {"r": 4, "target_modules": ["q_proj", "v_proj"], "seed": seed}
    tiny_model.write_adapter(folder, name, shape)
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of nine million bytes, and two small adapters for it."""
    folder = tmp_path_factory.mktemp("models")
    done = subprocess.run(
        [sys.executable, "-c", MAKE, str(folder / "base")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(LLM)},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert (folder / "base" / "model.safetensors").stat().st_size > MODEL_BYTES
    return folder


@pytest.fixture
def fabric(tmp_path: Path, models: Path) -> Iterator[SharedFabric]:
    for name in ("base", "one", "two"):
        (tmp_path / name).symlink_to(models / name)
    with small_disk(tmp_path, DISK_MIB), shared_fabric(tmp_path) as found:
        yield found


def merging(adapter: str) -> dict[str, Any]:
    inputs = {"model": "inputs.base", "adapter": "inputs.adapter"}
    return {
        "inputs": {"base": {"model": "./base"}, "adapter": {"adapter": f"./{adapter}"}},
        "steps": [{"name": "merge", "uses": "model.merge", "inputs": inputs}],
        "outputs": {"model": "merge.model"},
    }


def unreadable(store: Path) -> list[str]:
    """Returns missing blobs that a record or a stored tree names."""
    held = {path.name for path in (store / "cas").rglob("*") if path.is_file()}
    named = set()
    for record in published(store).values():
        for artifact in json.loads(record.data)["outputs"].values():
            named.add(artifact["blob"])
    for blob in (store / "cas").rglob("*"):
        if blob.is_file() and (data := blob.read_bytes()).startswith(b'{"kind":"tree"'):
            named |= {file["digest"] for file in json.loads(data)["files"]}
    return sorted(named - held)


def test_a_model_too_large_for_the_disk_is_reported_and_published_once_there_is_space(
    fabric: SharedFabric,
) -> None:
    first = fabric.answer(merging("one"), name="one")
    before = published(fabric.store)
    for leave_bytes, remedy in LEFT:
        filling = fill(fabric, leave_bytes=leave_bytes)
        refused = fabric.run(merging("two"), name="two")
        assert refused.returncode == ExitCode.FAILED
        assert "failed in step merge: store" in refused.stderr
        assert FULL in refused.stderr
        assert remedy in refused.stderr
        assert "Traceback" not in refused.stderr
        assert published(fabric.store) == before
        assert unreadable(fabric.store) == []
        filling.unlink()
    fabric.still_serves()

    second = fabric.answer(merging("two"), name="two")
    assert (second["phase"], second["executed"]) == ("Succeeded", 1)
    assert second["outputs"]["model"]["digest"] != first["outputs"]["model"]["digest"]
    assert unreadable(fabric.store) == []
    files = fabric.folder / "downloaded"
    done = fmesh("outputs", second["uid"], "--download", files, cwd=fabric.folder)
    assert done.returncode == 0, done.stderr
    again = fabric.answer(merging("one"), name="one")
    assert (again["executed"], again["hits"]) == (0, 1)
