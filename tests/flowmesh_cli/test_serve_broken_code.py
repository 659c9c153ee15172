"""``fmesh serve`` of a service whose code does not load ends, and says why."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.flowmesh_cli.calling import end_workers, fmesh

from flowmesh_cli.exit_codes import ExitCode

DOCUMENT = {
    "apiVersion": "flowmesh.dev/v1alpha1",
    "kind": "FlowMeshService",
    "metadata": {"name": "broken"},
    "spec": {
        "components": {"read": {"python": {"file": "./read.py", "function": "read"}}},
        "stages": [{"name": "read", "component": "read", "inputs": {"text": "request.text"}}],
        "reply": {"text": "read.text"},
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_workers(tmp_path)


@pytest.mark.slow
def test_code_that_does_not_load_ends_the_command_with_its_error(folder: Path) -> None:
    (folder / "read.py").write_text("import nomod\n\ndef read(calls):\n    return calls\n")
    (folder / "broken.json").write_text(json.dumps(DOCUMENT))
    done = fmesh("serve", "broken.json", cwd=folder)
    assert done.returncode == ExitCode.REFUSED, done.stderr
    error = done.stderr[done.stderr.index("error: broken: ") :]
    assert "ModuleNotFoundError: No module named 'nomod'" in error
    assert "remedy: correct the code" in error
    assert not (folder / ".flowmesh/serving/endpoint.json").exists()
