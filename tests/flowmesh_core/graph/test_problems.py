"""Workflows that do not compile: the field, what is wrong, what was expected, the nearest name."""

import pytest
from tests.flowmesh_core.graph.steps import INPUTS, ROWS

from flowmesh_core.graph.limits import Limits
from flowmesh_core.spec.inputs import ONE_SOURCE_RULE


@pytest.mark.parametrize(
    ("step", "path", "message"),
    [
        ({"uses": "llm.genrate"}, "uses", "no engine 'llm.genrate'; did you mean 'llm.generate'?"),
        (
            {"inputs": {"x": "stf.metrics"}},
            "inputs.x",
            "no step 'stf'; did you mean 'sft'?",
        ),
        (
            {"inputs": {"x": "sft.metricz"}},
            "inputs.x",
            "test.noop has no output 'metricz'; did you mean 'metrics'?",
        ),
        (
            {"inputs": {"x": "inputs.bse"}},
            "inputs.x",
            "no input 'bse'; did you mean 'base'?",
        ),
        (
            {"inputs": {"x": "base.model"}},
            "inputs.x",
            "no step 'base'; did you mean 'inputs.base'?",
        ),
        ({"inputs": {"x": "inputs.base"}}, "inputs.x", "inputs.base is a model, expected metrics"),
        (
            {"inputs": {"x": "sft"}},
            "inputs.x",
            "'sft' is not a reference; write inputs.<name>, <step>.<port>, "
            "<step>[name=value].<port> or <step>[*].<port>",
        ),
        (
            {"inputs": {"a-b": "sft.metrics"}},
            "inputs.a-b",
            "'a-b' must be an identifier: letters, digits and _",
        ),
        (
            {"with": {"valeu": 1}},
            "with.valeu",
            "test.noop has no parameter 'valeu'; did you mean 'value'?",
        ),
        (
            {"with": {"value": "${params.smaples}"}},
            "with.value",
            "no 'smaples' in params; did you mean 'samples'?",
        ),
        ({"with": {"value": ["${matrix.x}"]}}, "with.value[0]", "no 'x' in matrix"),
        (
            {"with": {"value": "${env.HOME}"}},
            "with.value",
            "${env.HOME} is not a reference; write ${params.name}, ${matrix.name}, or $${ for a"
            " plain ${",
        ),
        (
            {"with": {"value": "${params.x"}},
            "with.value",
            "'${params.x' has no closing brace; write $${ for a plain ${",
        ),
        (
            {"when": "params.samples >"},
            "when",
            "'params.samples >' is not a CEL condition; look at character 16",
        ),
        ({"when": "params.smaples > 1"}, "when", "no 'smaples' in params; did you mean 'samples'?"),
        ({"when": "steps['stf'].metrics.x > 1"}, "when", "no step 'stf'; did you mean 'sft'?"),
        (
            {"when": "steps['sft'].rows.count > 1"},
            "when",
            "test.noop has no output 'rows'; there is metrics",
        ),
        (
            {"when": "steps[params.samples].metrics.x > 1"},
            "when",
            "a step is read by a fixed name: steps['name'].port.field",
        ),
        (
            {"when": "sft.metrics.x > 1"},
            "when",
            "'sft' is not known; a condition reads params, matrix, steps; did you mean"
            " steps['sft']?",
        ),
        ({"when": "siez(params.samples) > 1"}, "when", "no function 'siez'; did you mean 'size'?"),
        (
            {"when": "steps['m'].metrics.x > 1"},
            "when",
            "step 'm' has a matrix; read one of its instances: steps['m[k=1]']",
        ),
        (
            {"when": "steps['m[k=3]'].metrics.x > 1"},
            "when",
            "step 'm' has no instance with k=3; there is 1, 2",
        ),
        (
            {"when": "steps['m[*]'].metrics.x > 1"},
            "when",
            "a condition reads one instance of 'm', not several",
        ),
        (
            {"when": "steps['m[k=1.0]'].metrics.x > 1"},
            "when",
            "write steps['m[k=1]'], the instance's path",
        ),
        (
            {"inputs": {"x": "m.metrics"}},
            "inputs.x",
            "step 'm' has a matrix; write m[*].metrics for all its instances, or one of"
            " them: m[k=1].metrics",
        ),
        (
            {"inputs": {"x": "m[*].metrics"}},
            "inputs.x",
            "[*] concatenates data sets, not metrics; select one instance",
        ),
        (
            {"inputs": {"x": "m[j=1].metrics"}},
            "inputs.x",
            "step 'm' has no matrix name 'j'; there is k",
        ),
        (
            {"inputs": {"x": "m[k='1'].metrics"}},
            "inputs.x",
            "step 'm' has no instance with k=\"1\"; there is 1, 2",
        ),
        (
            {"inputs": {"x": "m[k=on].metrics"}},
            "inputs.x",
            'on is a boolean in YAML 1.1 and a string in YAML 1.2; write true, false or "on"',
        ),
        (
            {"inputs": {"x": "m[k=matrix.k].metrics"}},
            "inputs.x",
            "this step has no matrix name 'k'",
        ),
        (
            {"inputs": {"x": "sft[*].metrics"}},
            "inputs.x",
            "step 'sft' has no matrix; leave [..] out",
        ),
        ({"matrix": {"x": []}}, "matrix.x", "expected at least one value"),
        (
            {"matrix": {"x": [1, {"y": 2}]}},
            "matrix.x[1]",
            "expected a string, a number or a boolean",
        ),
        ({"matrix": {"x": [1, True, 1.0]}}, "matrix.x[2]", "1 is listed twice"),
        ({"name": "sft"}, "name", "'sft' is taken by spec.steps[0]"),
        ({"name": "inputs"}, "name", "'inputs' is taken by the inputs from outside"),
        ({"cache": {"ignoredInputs": ["y"]}}, "cache.ignoredInputs[0]", "no input 'y' here"),
        (
            {"resources": {"tensorParallel": 2}},
            "resources.tensorParallel",
            "test.noop runs on one device; leave it out",
        ),
    ],
)
def test_an_invalid_step_is_reported_with_location_and_reason(
    problems, step, path, message
) -> None:
    found = problems(
        {"name": "sft"},
        {"name": "m", "matrix": {"k": [1, 2]}},
        {"name": "x", **step},
        inputs=INPUTS,
        params={"samples": 4},
    )
    assert found == {f"spec.steps[2].{path}": message}


def test_a_missing_input_or_parameter_is_reported(problems) -> None:
    assert problems(
        {"uses": "llm.generate", "with": {"prompt": "x"}, "inputs": {"model": "inputs.base"}},
        inputs=INPUTS,
    ) == {"spec.steps[0].inputs": "llm.generate needs the input 'rows', a data set"}
    (message,) = problems({"uses": "data.sql"}).values()
    assert message.startswith("data.sql needs the parameter 'query': ")


def test_rows_that_name_the_chunks_of_a_step_cannot_be_ignored(problems) -> None:
    found = problems(
        {
            "uses": "llm.generate",
            "with": {"prompt": "x"},
            "inputs": {"model": "inputs.base", "rows": "inputs.rows"},
            "cache": {"ignoredInputs": ["model", "rows"]},
        },
        inputs=INPUTS,
    )
    (place,) = [k for k in found if "ignoredInputs" in k]
    assert place.endswith("cache.ignoredInputs[1]")
    assert "works chunk by chunk" in found[place]


def test_invalid_python_is_reported_with_its_line(problems) -> None:
    found = problems({"uses": "code.python", "with": {"code": "def main(rows):\n  return ("}})
    assert found == {"spec.steps[0].with.code": "not Python: '(' was never closed on line 2 of it"}


def test_a_cycle_is_named_with_its_path(problems) -> None:
    found = problems(
        {"inputs": {"x": "c.metrics"}},
        {"inputs": {"x": "a.metrics"}},
        {"when": "steps['b'].metrics.x > 1"},
        {"inputs": {"x": "a.metrics"}},
    )
    (message,) = found.values()
    assert message == "the steps wait for each other: a → b → c → a"


def test_a_step_that_waits_for_itself_is_a_cycle(problems) -> None:
    (message,) = problems({"inputs": {"x": "a.metrics"}}).values()
    assert message == "the steps wait for each other: a → a"


def test_other_mistakes_on_a_cycle_are_reported_too(problems) -> None:
    found = problems({"inputs": {"x": "a.metrics"}, "with": {"valeu": 1}})
    assert sorted(found) == ["spec.steps[0]", "spec.steps[0].with.valeu"]


@pytest.mark.parametrize(
    ("given", "path", "message"),
    [
        (
            {"model": "smollm"},
            ".model",
            "no built-in model 'smollm' (a file or directory is written ./smollm, a hub's"
            " hf://org/name); did you mean 'smollm2-135m-instruct'?",
        ),
        (
            {"dataset": "questions.jsonl"},
            ".dataset",
            "no built-in dataset 'questions.jsonl' (a file or directory is written ./questions",
        ),
        (
            {"model": "http://x/y"},
            ".model",
            "cannot import from http://; use s3://, https:// or hf://",
        ),
        (
            {"adapter": "hf://org/name"},
            ".adapter",
            "no engine that imports adapters is installed ('adapter.import' is missing)",
        ),
        (
            {"model": "hf://x"},
            ".model",
            "'hf://x' is not a hub address; write hf://org/name[@revision]",
        ),
        ({"model": "cas:" + "a" * 64}, ".model", "'cas:aaaaaaaaaaaaaaaaaaaa…' is not a reference"),
        (
            {"model": f"cas:metrics:{'a' * 64}.{'b' * 34}"},
            ".model",
            "the reference is of kind metrics; expected one of kind model",
        ),
        ({}, "", f"{ONE_SOURCE_RULE}; got none"),
        (
            {"model": "x", "rows": []},
            "",
            f"{ONE_SOURCE_RULE}; got model and rows",
        ),
    ],
)
def test_an_invalid_input_is_reported_with_location_and_reason(
    problems, given, path, message
) -> None:
    found = problems({}, inputs={"x": given})
    assert list(found) == [f"spec.inputs.x{path}"]
    assert found[f"spec.inputs.x{path}"].startswith(message)


def test_a_file_that_was_not_uploaded_is_reported_with_the_commands_that_upload_it(
    problems,
) -> None:
    found = problems({}, inputs={"x": {"dataset": "./q.jsonl"}}, validate_only=False)
    assert "only fmesh uploads files" in found["spec.inputs.x.dataset"]


@pytest.mark.parametrize(
    ("field", "value"), [("budgetUsd", "0"), ("budgetUsd", "0.00"), ("deadline", "0s")]
)
def test_a_budget_or_deadline_of_0_is_not_taken_for_none(problems, field, value) -> None:
    (message,) = problems({}, **{field: value}).values()
    assert message.startswith("0 is not a limit")


@pytest.mark.parametrize(
    ("step", "path"),
    [
        ({"timeout": "0s"}, "timeout"),
        ({"timeout": "0h0.0ms"}, "timeout"),
        ({"cache": {"maxAge": "0d"}}, "cache.maxAge"),
        ({"resources": {"memory": "0Gi"}}, "resources.memory"),
    ],
)
def test_a_limit_of_0_of_a_step_is_not_taken_for_none(problems, step, path) -> None:
    found = problems(step)
    assert list(found) == [f"spec.steps[0].{path}"]
    assert found[f"spec.steps[0].{path}"].startswith("0 is not a limit")


def test_a_backoff_of_0_is_none(problems) -> None:
    assert problems({"retry": {"backoff": "0s"}}) == {}


def test_an_aim_and_weights_exclude_each_other(problems) -> None:
    found = problems({}, optimize="cost", weights={"alpha": 1, "beta": 1, "gamma": 1})
    assert found == {"spec.weights": "give optimize or weights, not both"}


@pytest.mark.parametrize(
    ("limits", "path", "message"),
    [
        (Limits(steps=5), "spec.steps", "6 steps after expansion, of at most 5"),
        (Limits(fan_out=3), "spec.steps[0].matrix", "4 instances, of at most 3"),
        (Limits(depth=1), "spec.steps", "2 steps one after the other, of at most 1"),
        (Limits(params_bytes=30), "spec.steps", "more than 30 bytes of parameters, once filled in"),
        (Limits(rows_bytes=10), "spec.inputs.q.rows", "about 36 bytes of rows, of at most 10; put"),
    ],
)
def test_a_workflow_beyond_a_limit_is_refused_with_that_limit(
    problems, limits, path, message
) -> None:
    found = problems(
        {"matrix": {"x": [1, 2, 3, 4]}, "with": {"value": "${params.big}"}},
        {},
        {"inputs": {"x": "b.metrics"}},
        params={"big": "x" * 10},
        inputs={"q": {"rows": ROWS}},
        limits=limits,
    )
    assert list(found) == [path]
    assert found[path].startswith(message)


def test_one_mistake_in_a_matrix_is_reported_once(problems) -> None:
    found = problems({"matrix": {"x": [1, 2, 3]}, "with": {"valeu": 1}})
    assert len(found) == 1


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (  # an input with a wrong name is not missing too
            [{"name": "m", "uses": "test.map", "inputs": {"row": "inputs.q"}}],
            {"spec.steps[0].inputs.row": "test.map has no input 'row'; did you mean 'rows'?"},
        ),
        (  # nor is a parameter
            [{"uses": "data.sql", "inputs": {"q": "inputs.q"}, "with": {"qery": "select 1"}}],
            {"spec.steps[0].with.qery": "data.sql has no parameter 'qery'; did you mean 'query'?"},
        ),
        (
            [
                {
                    "uses": "llm.generate",
                    "inputs": {"model": "inputs.base", "rows": "inputs.q"},
                    "with": {"promt": "{{ question }}"},
                }
            ],
            {
                "spec.steps[0].with.promt": "llm.generate has no parameter 'promt'; did you mean"
                " 'prompt'?"
            },
        ),
        (  # a wrong matrix hides neither the rest of its step nor makes references wrong
            [
                {"name": "m", "matrix": {"k": [1, None]}, "with": {"valeu": 1}},
                {"inputs": {"x": "m[k=2].metrics"}, "after": ["m[k=3]"]},
                {"when": "steps['m[k=2]'].metrics.value > 1"},
            ],
            {
                "spec.steps[0].matrix.k[1]": "expected a string, a number or a boolean",
                "spec.steps[0].with.valeu": "test.noop has no parameter 'valeu'; did you mean"
                " 'value'?",
            },
        ),
        (  # the column that a wrong parameter would add is not missing
            [
                {
                    "name": "m",
                    "uses": "test.map",
                    "inputs": {"rows": "inputs.q"},
                    "with": {"output": 7},
                },
                {
                    "uses": "data.sql",
                    "inputs": {"rows": "m.rows"},
                    "with": {"query": "select said from rows"},
                },
            ],
            {"spec.steps[0].with.output": "expected a string, got the integer 7; quote it"},
        ),
        (  # a metric of a step with wrong parameters
            [
                {
                    "name": "p",
                    "uses": "eval.pass-at-k",
                    "inputs": {"rows": "inputs.q"},
                    "with": {"problem": ["question"], "correct": "target", "k": "4"},
                },
                {"when": "steps['p'].metrics.pass_at_4 > 0.5"},
            ],
            {"spec.steps[0].with.k": "expected a list, got the string '4'; write it as [a, b]"},
        ),
    ],
)
def test_what_follows_from_a_reported_problem_is_left_out(problems, steps, expected) -> None:
    assert problems(*steps, inputs={**INPUTS, "q": {"rows": ROWS}}) == expected


def test_an_overlarge_matrix_does_not_hide_problems_of_its_step(problems) -> None:
    found = problems(
        {"name": "m", "matrix": {"k": list(range(5))}, "with": {"valeu": 1}},
        {"inputs": {"x": "m[k=4].metrics"}},
        limits=Limits(fan_out=3),
    )
    assert list(found) == ["spec.steps[0].matrix", "spec.steps[0].with.valeu"]
