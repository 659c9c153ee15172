"""The memory that the demos need, as README says it."""

import re
from pathlib import Path

import pytest

from flowmesh_cli.local.machine import MEMORY_SHARE
from flowmesh_cli.verbs.validate import compile_sources
from flowmesh_cli.workflows.selection import WorkflowSelection
from flowmesh_cli.workflows.sources import read_sources
from flowmesh_core.catalog.builtin_models import BUILTIN_MODEL_BYTES
from flowmesh_core.catalog.plugins import load_catalog

ROOT = Path(__file__).parents[2]
MODEL_MIB = BUILTIN_MODEL_BYTES["smollm2-135m-instruct"] / 2**20


def largest_step_mib(*patterns: str) -> float:
    """Returns what the largest step reserves, where each of its models has the size of the base."""
    files = [file for pattern in patterns for file in sorted((ROOT / "examples").glob(pattern))]
    plans = compile_sources(read_sources(WorkflowSelection(files)).workflows)
    catalog = load_catalog()
    needs = []
    for step in (step for plan in plans for step in plan.steps):
        contract = catalog.newest(step.engine)
        assert contract is not None
        ports = {edge.port for edge in step.edges}
        models = sum(p.name in ports and p.kind.value == "model" for p in contract.inputs)
        needs.append(
            contract.base_memory_mib + contract.component_memory_factor * models * MODEL_MIB
        )
    return max(needs)


@pytest.mark.parametrize(
    ("patterns", "text"),
    [
        (["demo/*.yaml"], r"`make demo` needs (\d+) GiB"),
        (["post-training/rl[ah]*.yaml"], r"`make demo-training` (\d+):"),
    ],
)
def test_readme_says_how_much_memory_a_demo_needs(patterns: list[str], text: str) -> None:
    [said] = re.findall(text, (ROOT / "README.md").read_text())
    free_mib = largest_step_mib(*patterns) / MEMORY_SHARE
    assert free_mib < int(said) * 1024 < free_mib + 1024
