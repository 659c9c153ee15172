"""Workflows from files, texts and values, with other parameters and inputs."""

import datetime
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flowmesh_sdk as fm
from flowmesh_api.v1.problems import Problem
from flowmesh_documents.parameters import missing_value, parameter_values
from flowmesh_sdk.local_inputs import local_inputs

TEXT = """
apiVersion: flowmesh.dev/v1alpha1
kind: FlowMeshWorkflow
metadata: {name: doubled}
spec:
  params: {times: 3}
  inputs:
    numbers: {dataset: ./numbers.jsonl}
    base: {model: smollm2-135m-instruct}
  steps:
  - name: double
    uses: data.sql
    inputs: {numbers: inputs.numbers}
    with: {query: "select a * ${params.times} as b from numbers"}
  outputs: {rows: double.rows}
"""


def test_text_file_and_values_give_the_same_document(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(TEXT)
    from_text = fm.load(TEXT)
    assert fm.load(file).to_dict() == fm.load(str(file)).to_dict() == from_text.to_dict()
    assert fm.load(from_text.to_dict()).to_dict() == from_text.to_dict()
    assert fm.load(file).folder == tmp_path
    assert from_text.name == "doubled"


def test_values_are_copied() -> None:
    values = fm.load(TEXT).to_dict()
    loaded = fm.load(values, params={"times": 4})
    assert values["spec"]["params"] == {"times": 3}
    loaded.to_dict()["spec"]["params"]["times"] = 5
    assert loaded.to_dict()["spec"]["params"] == {"times": 4}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("./other.jsonl", {"dataset": "./other.jsonl"}),
        (Path("other.jsonl"), {"dataset": "./other.jsonl"}),
        (Path("/data/other.jsonl"), {"dataset": "/data/other.jsonl"}),
        ("nightly/numbers", {"output": "nightly/numbers"}),
        ([{"a": 1}], {"rows": [{"a": 1}]}),
        ({"dataset": "hf://x/y", "pin": True}, {"dataset": "hf://x/y", "pin": True}),
    ],
)
def test_an_input_is_a_place_rows_or_all_of_its_fields(given: Any, expected: Any) -> None:
    loaded = fm.load(TEXT, inputs={"numbers": given})
    assert loaded.to_dict()["spec"]["inputs"]["numbers"] == expected


def test_an_input_keeps_its_kind() -> None:
    loaded = fm.load(TEXT, inputs={"base": "hf://org/model"})
    assert loaded.to_dict()["spec"]["inputs"]["base"] == {"model": "hf://org/model"}


@pytest.mark.parametrize("values", [{"params": {"time": 1}}, {"inputs": {"number": "./x.jsonl"}}])
def test_a_misspelt_name_is_refused_with_those_that_there_are(values: Any) -> None:
    with pytest.raises(
        fm.InvalidArgumentError, match=r"no spec\.(params\.time|inputs\.number); it has "
    ) as refused:
        fm.load(TEXT, **values)
    assert refused.value.remedy


def test_what_is_not_yaml_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(TEXT.replace("times: 3", "times: yes"))
    with pytest.raises(
        fm.InvalidWorkflowError, match=r"flow\.yaml:6:19: spec\.params\.times: yes"
    ) as e:
        fm.load(file)
    assert e.value.where == str(file)
    assert "`problems`" in e.value.remedy


@pytest.mark.parametrize("text", ["kind: FlowMeshCachePolicy\na: 1\n", f"{TEXT}---{TEXT}"])
def test_a_text_holds_one_workflow(text: str) -> None:
    with pytest.raises(fm.InvalidWorkflowError, match="expected one FlowMeshWorkflow, found"):
        fm.load(text)


def test_a_workflow_is_shown_with_its_number_of_steps() -> None:
    shown = "<Workflow rows: {}>"
    steps = [{"name": "a", "uses": "test.noop"}, {"name": "b", "uses": "test.noop"}]
    for count, text in ((1, "1 step"), (2, "2 steps")):
        document = {"metadata": {"name": "rows"}, "spec": {"steps": steps[:count]}}
        assert repr(fm.load(document)) == shown.format(text)


def test_a_name_that_is_no_file_is_refused_with_what_is_expected() -> None:
    with pytest.raises(fm.FlowMeshError, match=r"give the path of a \.yaml"):
        fm.load("nonsense")
    with pytest.raises(FileNotFoundError):
        fm.load("missing.yaml")


def test_a_problem_of_the_server_is_shown_with_its_line() -> None:
    problem = Problem("spec.steps[0].uses", "there is none of this name")
    error = fm.load(TEXT).invalid([problem])
    assert str(error).startswith("line 12, column 5: spec.steps[0].uses: there is")
    assert error.problems[0].line == 12


DECLARED = TEXT.replace(
    "{times: 3}",
    "{times: {type: integer, default: 3, maximum: 9}, file: {type: string, required: true},"
    " rate: 0.5, any: null}",
).replace("./numbers.jsonl", '"${params.file}"')


def test_parameters_that_are_declared_keep_their_declarations() -> None:
    loaded = fm.load(DECLARED, params={"times": 4, "file": "./n.jsonl", "rate": 1, "any": [1]})
    assert loaded.to_dict()["spec"]["params"] == {
        "times": {"type": "integer", "default": 4, "maximum": 9},
        "file": {"type": "string", "default": "./n.jsonl"},
        "rate": 1,
        "any": [1],
    }


def test_a_declared_integer_takes_a_float_without_a_fraction() -> None:
    params = fm.load(DECLARED, params={"times": 4.0, "file": "./n.jsonl"}).to_dict()["spec"]
    assert repr(parameter_values(params["params"])["times"]) == "4"
    with pytest.raises(fm.InvalidArgumentError, match="times is an integer"):
        fm.load(DECLARED, params={"times": 4.5})


def test_parameters_of_another_type_are_refused_all_at_once() -> None:
    with pytest.raises(fm.InvalidArgumentError) as refused:
        fm.load(DECLARED, params={"times": "4", "file": 5, "rate": None, "tims": 1})
    assert refused.value.where == "params"
    assert refused.value.message == (
        "times is an integer (default 3), got '4'; file is a string, got 5; rate is a"
        " number (default 0.5), got null; the workflow has no spec.params.tims; it has times,"
        " file, rate, any"
    )
    assert "spec.params" in refused.value.remedy


BEYOND = Problem("spec.params.times.default", "times is at most 9, got 10")


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        -math.inf,
        b"x",
        {1, 2},
        Decimal(1),
        datetime.date(2026, 1, 1),
        "\ud800",
        [[object]],
    ],
    ids=repr,
)
@pytest.mark.parametrize("argument", ["params", "inputs", "source"])
def test_a_value_that_json_has_not_is_refused_before_it_is_sent(argument: str, value: Any) -> None:
    document = fm.load(TEXT.replace("times: 3", "times:")).to_dict()
    where, source, given = {
        "params": ("params.times", document, {"params": {"times": value}}),
        "inputs": ("inputs.numbers", document, {"inputs": {"numbers": [{"a": value}]}}),
        "source": ("load()", {**document, "other": value}, {}),
    }[argument]
    with pytest.raises(fm.InvalidArgumentError, match="JSON") as refused:
        fm.load(source, **given)
    assert refused.value.where == where


def test_tuples_and_floats_of_numpy_are_sent_as_lists_and_numbers() -> None:
    workflow = fm.load(TEXT.replace("times: 3", "times: [1.5]"))
    params = workflow.with_values(params={"times": (np.float64(2.5), 1)}).to_dict()["spec"][
        "params"
    ]
    assert params == {"times": [2.5, 1]}
    assert type(params["times"][0]) is float


@pytest.mark.parametrize("params", [["times"], "times", 3])
def test_parameters_that_are_no_mapping_have_no_names(params: Any) -> None:
    workflow = fm.load(TEXT).to_dict()
    workflow["spec"]["params"] = params
    with pytest.raises(fm.InvalidArgumentError, match="it has none"):
        fm.load(workflow, params={"times": 4})


def test_a_value_that_the_fabric_refuses_is_a_wrong_argument_and_no_default_of_the_file() -> None:
    given = fm.load(DECLARED, params={"times": 10}).with_values(params={"file": "./n.jsonl"})
    missing = Problem("spec.steps[0].uses", "there is none of this name")
    error = given.invalid([BEYOND, missing])
    assert isinstance(error, fm.InvalidArgumentError)
    assert str(error).startswith("params: times is at most 9, got 10\nline 12, column 5: spec.st")
    assert error.remedy
    assert [(p.path, p.line) for p in error.problems] == [
        ("params.times", 0),
        ("spec.steps[0].uses", 12),
    ]


def test_a_default_of_the_file_that_is_refused_is_a_mistake_of_the_workflow() -> None:
    error = fm.load(DECLARED, params={"file": "./n.jsonl"}).invalid([BEYOND])
    assert isinstance(error, fm.InvalidWorkflowError)
    assert error.problems[0].path == BEYOND.path
    assert error.problems[0].line == 6


def test_a_required_parameter_is_asked_for_as_python_gives_it() -> None:
    message = missing_value("file")
    error = fm.load(DECLARED).invalid([Problem("spec.params.file", message)])
    assert isinstance(error, fm.InvalidWorkflowError)
    assert error.where == "spec.params.file"
    assert error.problems[0].message == (
        "params.file is required: params={'file': ...}, or a default here"
    )


def test_a_file_that_a_parameter_names_is_local_once_the_parameter_has_a_value() -> None:
    spec = fm.load(DECLARED).to_dict()["spec"]
    assert list(local_inputs(spec)) == []
    spec = fm.load(DECLARED, params={"file": "./n.jsonl"}).to_dict()["spec"]
    assert list(local_inputs(spec)) == [("numbers", "dataset", "./n.jsonl")]
