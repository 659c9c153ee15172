"""`--set`: read by the type of the parameter, before anything else of the file is checked."""

from pathlib import Path
from typing import Any

import pytest

from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError, FilesError
from flowmesh_cli.verbs.validate import compile_sources, validate_files
from flowmesh_cli.workflows.selection import WorkflowSelection
from flowmesh_cli.workflows.sources import read_sources

TEXT = """\
apiVersion: flowmesh.dev/v1alpha1
kind: FlowMeshWorkflow
metadata: {name: trial}
spec:
  params:
    file: {type: string, required: true, description: The rows to score}
    lrs: {type: list, items: number, required: true, maxItems: 3}
    samples: {type: integer, default: 4, minimum: 1, maximum: 8}
    budget: "0.50"
  budgetUsd: "${params.budget}"
  inputs: {rows: {dataset: "${params.file}"}}
  steps:
  - name: score
    uses: eval.exact-match
    inputs: {rows: inputs.rows}
    with: {prediction: answer, target: target}
  - name: tune
    uses: data.sql
    matrix: {lr: "${params.lrs}"}
    inputs: {rows: inputs.rows}
    with: {query: "select * from rows limit ${params.samples}"}
  outputs: {best: "tune[lr=1e-5].rows"}
"""


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "answers.jsonl").write_text('{"answer": "1", "target": "2"}\n')
    file = tmp_path / "trial.yaml"
    file.write_text(TEXT)
    return file


def refused(file: Path, *settings: str, **more: Any) -> list[str]:
    with pytest.raises(FilesError) as caught:
        read_sources(WorkflowSelection([file], settings=settings, **more))
    return [line.replace(str(file), "trial.yaml") for line in caught.value.lines]


def test_required_parameters_are_named_at_once_and_nothing_else_is_wrong(flow: Path) -> None:
    assert refused(flow) == [
        "trial.yaml:6:5: spec.params.file: params.file is required: --set file=..., or a default"
        " here",
        "trial.yaml:7:5: spec.params.lrs: params.lrs is required: --set lrs=..., or a default here",
    ]
    assert len(refused(flow, "lrs=[1e-5]")) == 1


def test_set_values_are_read_by_their_types(flow: Path) -> None:
    settings = ["file=./answers.jsonl", "lrs=[1e-5, 1]", "samples=8", "budget=2"]
    sources = read_sources(WorkflowSelection([flow], settings=settings))
    (source,) = sources.workflows
    (plan,) = compile_sources(sources.workflows)
    assert plan.params == {
        "file": "./answers.jsonl",
        "lrs": [1e-5, 1],
        "samples": 8,
        "budget": "2",
    }
    assert plan.budget_nanousd == 2 * 10**9
    assert [s.path for s in plan.steps] == ["score", "tune[lr=1e-5]", "tune[lr=1]"]
    declared = source.document.value["spec"]["params"]["samples"]
    assert declared == {"type": "integer", "default": 8, "minimum": 1, "maximum": 8}


def test_a_float_without_a_fraction_is_an_integer(flow: Path) -> None:
    flow.write_text(TEXT.replace("default: 4", "default: 4.0"))
    for more, expected in (([], 4), (["samples=8.0"], 8)):
        settings = ["file=./answers.jsonl", "lrs=[1e-5]", *more]
        (plan,) = compile_sources(
            read_sources(WorkflowSelection([flow], settings=settings)).workflows
        )
        assert repr(plan.params["samples"]) == str(expected)


def test_what_a_text_of_another_type_is_refused_with_is_listed_at_once(flow: Path) -> None:
    assert refused(flow, "samples=x", "lrs=1e-5", "file=a") == [
        "--set samples: samples is an integer (default 4), got 'x'",
        "--set lrs: lrs is a list, got '1e-5'",
    ]


def test_a_value_beyond_its_bounds_is_refused_at_its_option(flow: Path) -> None:
    assert refused(flow, "file=./answers.jsonl", "lrs=[1e-5, a]", "samples=9") == [
        "--set lrs: lrs has elements of the type number; element 1 is a number, got 'a'",
        "--set samples: samples is at most 8, got 9",
    ]


def test_a_wrong_default_is_refused_at_its_declaration(flow: Path) -> None:
    flow.write_text(TEXT.replace("default: 4", "default: 9"))
    assert refused(flow, "file=./answers.jsonl", "lrs=[1e-5]") == [
        "trial.yaml:8:30: spec.params.samples.default: samples is at most 8, got 9"
    ]
    read_sources(
        WorkflowSelection([flow], settings=["file=./answers.jsonl", "lrs=[1e-5]", "samples=8"])
    )


def test_a_wrong_declaration_is_refused_at_its_place_whatever_is_set(flow: Path) -> None:
    flow.write_text(TEXT.replace("maximum: 8", "maximum: x"))
    assert refused(flow, "file=./answers.jsonl", "lrs=[1e-5]", "samples=9") == [
        "trial.yaml:8:54: spec.params.samples.maximum: expected a number, got 'x'"
    ]


def test_all_that_is_wrong_with_what_is_set_is_listed_at_once(flow: Path) -> None:
    assert refused(flow, "samples=true", "sample=1", "lrs=[1, 2, 3, 4]", "budget=1", "file") == [
        "--set samples: samples is an integer (default 4), got 'true'",
        "--set sample: no workflow has spec.params.sample; did you mean 'samples'?",
        "--set lrs: lrs has 4 elements, of at most 3",
        "--set: 'file' is not of the form param=value",
    ]


def test_a_parameter_that_is_set_twice_is_refused(flow: Path) -> None:
    assert refused(flow, "samples=3", "budget=1", "samples=4", "samples=3") == [
        "--set samples: set more than once",
    ]


def test_a_wrong_filled_value_names_its_place_and_its_parameter(flow: Path) -> None:
    (line,) = refused(flow, "file=./answers.jsonl", "lrs=[1e-5]", "budget=five")
    assert line == (
        'trial.yaml:10:3: spec.budgetUsd: expected an amount of dollars in quotes, such as "0.50",'
        " got the string 'five' (from ${params.budget})"
    )


def test_a_file_that_a_parameter_names_must_exist_and_its_columns_are_known(flow: Path) -> None:
    (line,) = refused(flow, "file=./missing.jsonl", "lrs=[1e-5]")
    assert line.startswith("trial.yaml:11:19: spec.inputs.rows.dataset: ")
    assert "missing.jsonl does not exist" in line
    (flow.parent / "other.jsonl").write_text('{"said": "1", "target": "2"}\n')
    chosen = WorkflowSelection([flow], settings=["file=./other.jsonl", "lrs=[1e-5]"])
    with pytest.raises(FilesError, match="no column 'answer' in the rows; there is said, target"):
        validate_files(chosen, place=Target(cluster=True), as_json=True)


def test_an_unknown_parameter_is_refused_before_missing_ones(flow: Path) -> None:
    with pytest.raises(CliError, match=r"no workflow has spec\.params\.sample; did you mean"):
        read_sources(WorkflowSelection([flow], settings=["sample=1"]))


def test_an_option_without_a_match_does_not_hide_that_a_file_is_not_yaml(flow: Path) -> None:
    flow.write_text(TEXT.replace("{name: trial}", "{name: trial"))
    (line,) = refused(flow, "samples=1")
    assert "not YAML" in line


@pytest.mark.parametrize("spec", ["[1]", "{params: [a], steps: [{name: a, uses: test.noop}]}"])
def test_options_on_a_malformed_file_end_with_its_problems_or_the_option(
    flow: Path, spec: str
) -> None:
    flow.write_text(TEXT.partition("spec:")[0] + f"spec: {spec}\n")
    with pytest.raises(CliError, match=r"no workflow has spec\.params\.x"):
        read_sources(WorkflowSelection([flow], settings=["x=1"]))
    assert refused(flow, namespaces=["a"])


def test_a_file_in_a_parameter_is_refused_for_kubectl(flow: Path) -> None:
    settings = ["file=./answers.jsonl", "lrs=[1e-5]"]
    with pytest.raises(
        FilesError, match=r"spec\.inputs\.rows\.dataset: \./answers\.jsonl is a file"
    ):
        validate_files(
            WorkflowSelection([flow], settings=settings),
            place=Target(cluster=True),
            as_json=True,
            kubernetes=True,
        )


def test_the_template_of_the_examples_needs_its_questions_alone() -> None:
    file = Path(__file__).parents[2] / "examples/templates/exam.yaml"
    (line,) = refused(file)
    assert "spec.params.questions: params.questions is required: --set questions=..." in line
    settings = ["questions=../questions.jsonl", "temperatures=[0, 0.5, 1]", "budget=2"]
    sources = read_sources(WorkflowSelection([file], settings=settings))
    (plan,) = compile_sources(sources.workflows)
    asked = [s.path for s in plan.steps if s.name == "ask"]
    assert asked == ["ask[temperature=0]", "ask[temperature=0.5]", "ask[temperature=1]"]
