"""References to matrix values where none are filled in, which would stand for themselves."""

from typing import Any

from tests.flowmesh_core.graph.steps import INPUTS

SAID = "is not filled in here, only in with and when of steps"


def test_a_matrix_value_in_a_salt_or_a_label_is_refused(problems: Any) -> None:
    step = {
        "matrix": {"n": [1, 2]},
        "cache": {"salt": "${matrix.n}"},
        "resources": {"labels": {"zone": "${matrix.n}"}, "antiLabels": {"zone": "${matrix.n}"}},
    }
    assert problems(step) == {
        "spec.steps[0].cache.salt": f"${{matrix.n}} {SAID}",
        "spec.steps[0].resources.labels.zone": f"${{matrix.n}} {SAID}",
        "spec.steps[0].resources.antiLabels.zone": f"${{matrix.n}} {SAID}",
    }


def test_a_text_that_names_no_matrix_value_is_left_as_it_is(problems: Any) -> None:
    for text in ("${HOME}", "${matrix.other}", "$${matrix.n}"):
        assert problems({"matrix": {"n": [1]}, "cache": {"salt": text}}) == {}
    assert problems({"cache": {"salt": "${matrix.n}"}}) == {}


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
