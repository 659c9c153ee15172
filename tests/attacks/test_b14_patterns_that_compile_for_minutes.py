"""Attacker: T2, a tenant whose judge or verifier has a regular expression.
Action: gives it repetitions within repetitions, or very many characters or levels.
Must not happen: an engine host that others use compiles it for minutes.
"""

from typing import Any

import pytest
from tests.flowmesh_core.catalog.built_in import builtin_catalog
from tests.flowmesh_core.graph.conftest import build
from tests.flowmesh_core.graph.steps import INPUTS

from flowmesh_core.catalog.patterns import PATTERN_CHARS_MAX, pattern_problem
from flowmesh_core.errors import SpecError
from flowmesh_core.graph.compile import compile_workflow
from flowmesh_core.graph.limits import Limits

HOSTILE = {
    "repetitions of repetitions": "((?:(?:a{1000}){1000}){1000})",
    "in an assertion": "(x)(?=(?:(?:a{1000}){1000}){1000})",
    "in an alternative": "(x|y(?:(?:a{500}){500}){5})",
    "very many characters": "(" + "a|" * (PATTERN_CHARS_MAX // 2) + "a)",
    "very many levels": "(" + "(?:" * 900 + "a" + ")*" * 900 + ")",
}
HONEST = (
    r"verdict:\s*([1-5])",
    r"(?i)^(?:the )?answer is \(?([A-J])\)?\.?$",
    r"\b([0-9]{1,3}(?:,[0-9]{3}){0,9}(?:\.[0-9]{1,20})?)\b",
    r"((?:[a-z]{1,63}\.){1,20}[a-z]{2,63})(?=\s|$)",
)


def steps(pattern: str) -> list[dict[str, Any]]:
    judge = {"method": "judge", "prompt": "{{ question }}", "pattern": pattern}
    check = {"name": "matches", "pattern": pattern}
    inputs = {"model": "inputs.base", "rows": "inputs.questions"}
    return [
        {"uses": "llm.score", "inputs": inputs, "with": judge},
        {
            "uses": "train.grpo",
            "inputs": inputs,
            "with": {"prompt": "{{ question }}", "reward_funcs": [check]},
        },
    ]


def compile_steps(pattern: str) -> None:
    workflow = build(steps(pattern), inputs=INPUTS)
    compile_workflow(workflow, builtin_catalog(), Limits(), validate_only=True)


@pytest.mark.parametrize("pattern", HOSTILE.values(), ids=HOSTILE)
def test_admission_refuses_it_by_its_place(pattern: str) -> None:
    with pytest.raises(SpecError) as refused:
        compile_steps(pattern)
    found = {p.path: p.message for p in refused.value.problems}
    assert found.keys() == {
        "spec.steps[0].with.pattern",
        "spec.steps[1].with.reward_funcs[0].pattern",
    }
    assert all("regular expression" in message for message in found.values())


@pytest.mark.parametrize("pattern", HONEST)
def test_what_people_write_is_accepted(pattern: str) -> None:
    assert pattern_problem(pattern) == ""
    compile_steps(pattern)
