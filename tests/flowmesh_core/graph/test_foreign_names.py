"""Names of other tools that FlowMesh does not have: the error says what to do instead."""

from typing import Any

import pytest
from tests.flowmesh_core.graph.steps import GENERATE, INPUTS

from flowmesh_core.catalog.missing_engines import missing_engine_hint

TRAIN = {
    "uses": "train.sft",
    "inputs": {"model": "inputs.base", "rows": "inputs.questions"},
    "with": {"text": "{{ question }}"},
}


@pytest.mark.parametrize(
    ("step", "name", "expected"),
    [
        (GENERATE, "logprobs", "llm.score gives log-probabilities of given texts"),
        (GENERATE, "guidedRegex", "write it in jsonSchema, as {type: string, pattern: ...}"),
        (GENERATE, "choice", "write it in jsonSchema, as {enum: [...]}"),
        (TRAIN, "use_rslora", "multiply lora_alpha by the square root of lora_r"),
        (TRAIN, "bias", "an adapter trains no biases; leave it out"),
        (TRAIN, "fsdp", "training runs on one device; leave it out"),
    ],
)
def test_a_parameter_of_another_tool_is_answered_with_what_to_do(
    problems: Any, step: dict[str, Any], name: str, expected: str
) -> None:
    given = {**step, "with": {**step["with"], name: 1}}
    [(path, message)] = problems(given, inputs=INPUTS).items()
    assert path == f"spec.steps[0].with.{name}"
    assert expected in message


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("image.edit", "models here read and write text alone"),
        ("docker.run", "no step runs a container image"),
        ("postgres.query", "no engine queries a database"),
        ("web.search", "call a search API with http.request"),
        ("llm.serve", "a model that stays loaded is a FlowMeshService"),
        ("http.agent", "a model behind an API answers one chat a row (http.chat)"),
        ("llm.generat", "did you mean 'llm.generate'?"),
    ],
)
def test_an_engine_of_another_tool_is_answered_with_what_to_do(
    problems: Any, engine: str, expected: str
) -> None:
    [message] = problems({"uses": engine}).values()
    assert message.startswith(f"no engine '{engine}'")
    assert expected in message


def test_a_typing_error_in_a_tool_gets_no_word_on_searches(problems: Any) -> None:
    agent = {**GENERATE, "uses": "llm.agent", "with": {"prompt": "x", "tools": ["calculater"]}}
    [message] = problems(agent, inputs=INPUTS).values()
    assert message.endswith("did you mean 'calculator'?")


def test_a_typing_error_in_an_engine_of_a_plugin_is_answered_with_its_name() -> None:
    assert missing_engine_hint("image.captoin", ["data.sql", "image.caption"]) == ""
