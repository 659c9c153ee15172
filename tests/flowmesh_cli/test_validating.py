"""What `fmesh validate --kubernetes` finds besides: files of this machine, objects too large."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_cli import flows

from flowmesh_cli.chosen import Chosen
from flowmesh_cli.failing import FilesError
from flowmesh_cli.validating import validate_files
from flowmesh_core.spec.size import MOST_OBJECT_BYTES

EXAMPLES = Path(__file__).parents[2] / "examples"


def wrong(file: Path) -> list[str]:
    try:
        validate_files(Chosen([file], None, None), as_json=True, kubernetes=True)
    except FilesError as e:
        return str(e).splitlines()
    return []


def workflow(folder: Path, inputs: dict[str, Any]) -> Path:
    file = folder / "w.yaml"
    step = {
        "name": "a",
        "uses": "data.sql",
        "inputs": {"rows": "inputs.q"},
        "with": {"query": "select * from rows"},
    }
    document = {
        "apiVersion": flows.API,
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": "w"},
        "spec": {"inputs": inputs, "steps": [step]},
    }
    file.write_text(json.dumps(document))
    return file


def test_a_file_of_this_machine_is_told_at_its_place() -> None:
    file = EXAMPLES / "best-of-four.yaml"
    validate_files(Chosen([file], None, None), as_json=True)
    [line] = wrong(file)
    assert line.startswith(f"{file}:12:17: spec.inputs.questions.dataset: ./questions.jsonl is a")
    assert "`fmesh submit` uploads it" in line


def test_the_same_workflow_for_a_cluster_is_fine() -> None:
    assert wrong(EXAMPLES / "kubernetes" / "best-of-four.yaml") == []


@pytest.mark.parametrize(("share", "fits"), [(0.9, True), (1.1, False)])
def test_what_is_too_large_for_one_object_is_told(
    tmp_path: Path, share: float, *, fits: bool
) -> None:
    rows = [{"question": "x" * 1000}] * int(MOST_OBJECT_BYTES * share / 1016)
    found = wrong(workflow(tmp_path, {"q": {"rows": rows}}))
    assert found == [] if fits else "that a cluster keeps in one object" in found[0]


def test_the_example_for_a_cluster_runs_what_the_laptops_runs() -> None:
    """But for where the questions are, and how long the object stays."""
    laptop, cluster = ((EXAMPLES / d / "best-of-four.yaml").read_text() for d in ("", "kubernetes"))

    def steps(text: str) -> str:
        return text.partition("  steps:")[2]

    assert steps(laptop)
    assert steps(laptop) == steps(cluster)
