"""References where none are filled in, which would stand for themselves."""

from typing import Any

import pytest
from tests.flowmesh_core.graph.steps import GENERATE, INPUTS

PARAMS = {"topic": "foxes", "day": "1"}
SAID = "is not filled in here, only in with and when of steps"


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ({"rows": [{"question": "What of ${params.topic}?"}]}, "rows[0].question"),
        ({"rows": ["${ params.topic }"]}, "rows[0].text"),
        ({"dataset": "https://example.com/${params.topic}.csv"}, "dataset"),
    ],
)
def test_a_parameter_in_an_input_is_refused(
    problems: Any, source: dict[str, Any], place: str
) -> None:
    step = {**GENERATE, "with": {"prompt": "x"}}
    found = problems(step, inputs={**INPUTS, "questions": source}, params=PARAMS)
    assert found == {f"spec.inputs.questions.{place}": f"${{params.topic}} {SAID}"}


def test_a_parameter_in_a_salt_or_a_label_is_refused(problems: Any) -> None:
    step = {
        "matrix": {"n": [1, 2]},
        "cache": {"salt": "${params.day}"},
        "resources": {"labels": {"zone": "${matrix.n}"}},
    }
    assert problems(step, params=PARAMS) == {
        "spec.steps[0].cache.salt": f"${{params.day}} {SAID}",
        "spec.steps[0].resources.labels.zone": f"${{matrix.n}} {SAID}",
    }


def test_texts_that_name_no_parameter_are_left_as_they_are(problems: Any) -> None:
    rows = [{"question": text} for text in ("${HOME}", "${params.other}", "$${params.topic}")]
    assert problems(GENERATE, inputs={**INPUTS, "questions": {"rows": rows}}, params=PARAMS) == {}
    rows = [{"question": "${params.topic}"}]
    assert problems(GENERATE, inputs={**INPUTS, "questions": {"rows": rows}}) == {}


def test_a_setting_of_an_adapter_is_refused_where_a_whole_model_is_trained(problems: Any) -> None:
    step = {
        "uses": "train.sft",
        "inputs": {"model": "inputs.base", "rows": "inputs.questions"},
        "with": {"text": "{{ question }}", "lora_r": 8},
    }
    wrong = {"spec.steps[0].with.lora_r": "lora_r needs use_peft"}
    assert problems(step, inputs=INPUTS) == wrong
    off = {**step, "with": {**step["with"], "use_peft": False}}
    assert problems(off, inputs=INPUTS) == wrong
    on = {**step, "with": {**step["with"], "use_peft": True}}
    assert problems(on, inputs=INPUTS) == {}
