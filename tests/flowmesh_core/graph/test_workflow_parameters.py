"""Parameters of a workflow: declarations, where they are filled in, and what is wrong with them."""

import copy
import functools
import itertools
import json
import operator
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.call_counts import calls_of
from tests.flowmesh_core.catalog.built_in import builtin_catalog
from tests.flowmesh_core.graph.parameter_places import PLACES, WRITTEN, as_plan, with_parameters
from tests.flowmesh_core.graph.steps import GENERATE, INPUTS, ROWS

from flowmesh_core.graph.plan import Plan
from flowmesh_core.graph.validate import check_loaded
from flowmesh_core.spec.load import load_text, parse_object, read_object
from flowmesh_core.spec.workflow import FlowMeshWorkflow
from flowmesh_documents.substitution import Substitution

LRS = {"type": "list", "items": "number", "default": [1e-5, 1e-4], "maxItems": 16}
SAMPLES = {"type": "integer", "minimum": 1, "maximum": 8, "default": 4}
HEAD = "apiVersion: flowmesh.dev/v1alpha1\nkind: FlowMeshWorkflow\nmetadata: {name: x}\nspec:\n"


def told(text: str) -> list[str]:
    """Returns the problems of a spec as `fmesh validate` prints them, lines from the spec on."""
    (loaded,), _ = load_text(HEAD + text)
    found = check_loaded(loaded, builtin_catalog())
    return [f"{p.line - 4}:{p.column}: {p.path}: {p.message}" for p in found]


# -- where they are filled in --------------------------------------------------------------------


def same_but_params(one: Plan, other: Plan) -> bool:
    return (one.steps, one.outputs, one.budget_nanousd, one.deadline_s) == (
        other.steps,
        other.outputs,
        other.budget_nanousd,
        other.deadline_s,
    )


@pytest.mark.parametrize("place", PLACES, ids=lambda p: ".".join(map(str, p)))
def test_a_filled_parameter_gives_the_plan_of_the_workflow_written_out(
    place: tuple[Any, ...],
) -> None:
    assert same_but_params(as_plan(with_parameters([place])), as_plan(WRITTEN))


def test_parameters_in_every_place_at_once_give_the_plan_of_the_workflow_written_out() -> None:
    inner = [
        p for p in PLACES if not any(o != p and o == p[: len(o)] for o in PLACES)
    ]  # not inside of another one
    assert len(inner) > 20
    assert same_but_params(as_plan(with_parameters(inner)), as_plan(WRITTEN))


@given(st.lists(st.sampled_from(PLACES), unique=True, max_size=6))
def test_any_places_together_give_the_plan_of_the_workflow_written_out(
    places: list[tuple[Any, ...]],
) -> None:
    apart = [p for p in places if not any(o != p and o == p[: len(o)] for o in places)]
    assert same_but_params(as_plan(with_parameters(apart)), as_plan(WRITTEN))


def test_inside_a_longer_text_a_value_is_written_as_text(compiled: Any) -> None:
    plan = compiled(
        {"timeout": "${params.minutes}m", "cache": {"salt": "day ${params.minutes}"}},
        params={"minutes": 5},
    )
    (step,) = plan.steps
    assert (step.timeout_s, step.cache.salt) == (300, "day 5")


def test_a_plain_value_is_its_own_default_and_conditions_read_values(compiled: Any) -> None:
    params = {"go": {"type": "boolean", "default": True}, "o": {"type": "odd", "x": 1}}
    plan = compiled({"when": "params.go && params.o.x > 0"}, params=params)
    assert plan.params == {"go": True, "o": {"type": "odd", "x": 1}}


def test_a_json_schema_is_a_value_and_no_declaration(compiled: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert compiled({"when": "true"}, params={"form": schema}).params == {"form": schema}


def test_an_optional_parameter_without_a_default_leaves_its_field_out(compiled: Any) -> None:
    params = {"budget": {"type": "string", "required": False}}
    assert compiled({}, budgetUsd="${params.budget}", params=params).budget_nanousd == 0


OPTIONAL = {"type": "string", "required": False}


FIELDS = [p for p in PLACES if isinstance(p[-1], str) and p[3:4] != (0,)]
"""Places of fields: no element of a list, and none in rows."""


@pytest.mark.parametrize("place", FIELDS, ids=str)
def test_a_field_that_is_exactly_an_optional_parameter_is_as_if_not_written(
    place: tuple[Any, ...],
) -> None:
    """Compared with the workflow without the field, also where that one is refused."""
    filled, without = with_parameters([place]), copy.deepcopy(WRITTEN)
    filled["params"] = dict.fromkeys(filled["params"], OPTIONAL)
    del functools.reduce(operator.getitem, place[:-1], without)[place[-1]]
    assert messages(filled) == messages(without)
    if not messages(without):
        assert same_but_params(as_plan(filled), as_plan(without))


def messages(spec: dict[str, Any]) -> dict[str, str]:
    """Returns what is wrong with a spec, without the parameters that it came from."""
    document = {"apiVersion": "flowmesh.dev/v1alpha1", "kind": "FlowMeshWorkflow"}
    (loaded,), _ = load_text(json.dumps({**document, "metadata": {"name": "w"}, "spec": spec}))
    found = check_loaded(loaded, builtin_catalog())
    return {p.path: re.sub(r" \(from .*\)$", "", p.message) for p in found}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cache", {"salt": "${params.o}", "reuse": "run"}),
        ("retry", {"attempts": "${params.o}", "backoff": "${params.o}"}),
        ("resources", {"labels": {"zone": "${params.o}"}, "memory": "${params.o}"}),
        ("with", {"output": {"path": "${params.o}"}, "samples": "${params.o}"}),
        ("matrix", "${params.o}"),
    ],
)
def test_an_optional_parameter_leaves_fields_of_nested_mappings_out(field: str, value: Any) -> None:
    filled = Substitution({"o": None}).fill(
        {field: value}, lambda _keys, message: pytest.fail(message)
    )
    assert "None" not in repr(filled)


def test_a_null_that_is_written_and_one_in_rows_stay() -> None:
    rows = [{"question": "${params.o}", "target": "2", "note": None}]
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": "w"},
        "spec": {
            "params": {"o": OPTIONAL},
            "inputs": {"q": {"rows": rows}},
            "steps": [{"name": "a", "uses": "test.map", "inputs": {"rows": "inputs.q"}}],
        },
    }
    workflow = parse_object(document)
    assert isinstance(workflow, FlowMeshWorkflow)
    assert workflow.spec.inputs["q"].rows == [{"question": None, "target": "2", "note": None}]


def test_an_optional_parameter_in_with_takes_the_default_of_the_engine(compiled: Any) -> None:
    with_ = {"prompt": "{{ question }}", "samples": "${params.k}"}
    params = {"k": {"type": "integer", "required": False}}
    plan = compiled({**GENERATE, "with": with_}, inputs=INPUTS, params=params)
    assert plan.steps[-1].params["samples"] == 1


@pytest.mark.parametrize("text", ["${HOME}", "$${params.topic}", "${matrix.n}", "$5 {params.x}"])
def test_in_rows_only_references_to_parameters_are_filled_in(text: str) -> None:
    spec = {"inputs": {"q": {"rows": [{"question": text}]}}, "steps": [{"name": "a"}]}
    spec["steps"] = [{"name": "a", "uses": "test.map", "inputs": {"rows": "inputs.q"}}]
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": "w"},
        "spec": {**spec, "params": {"topic": "foxes"}},
    }
    workflow = parse_object(document)
    assert isinstance(workflow, FlowMeshWorkflow)
    expected = text.replace("$${params", "${params")
    assert workflow.spec.inputs["q"].rows == [{"question": expected}]
    assert document["spec"]["inputs"]["q"]["rows"] == [{"question": text}], "it is not changed"


# -- what is wrong with a declaration or a value -------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "place", "message"),
    [
        (
            {"type": "integer", "required": True},
            "",
            "params.k is required: write a value, or a default here",
        ),
        ({"type": "integer"}, "", "params.k is required: write a value, or a default here"),
        ({"type": "integer", "default": 1e19}, ".default", "k is an integer, got 1e19"),
        (
            {"type": "list", "maxItems": 1.0, "default": [1, 2]},
            ".default",
            "k has 2 elements, of at most 1",
        ),
        ({"type": "integer", "default": "x"}, ".default", "k is an integer, got 'x'"),
        ({"type": "integer", "default": 4.5}, ".default", "k is an integer, got 4.5"),
        ({"type": "integer", "default": True}, ".default", "k is an integer, got true"),
        ({"type": "number", "default": "1"}, ".default", "k is a number, got '1'"),
        ({"type": "string", "default": 1}, ".default", "k is a string, got 1"),
        ({"type": "boolean", "default": 0}, ".default", "k is a boolean, got 0"),
        ({"type": "list", "default": "a"}, ".default", "k is a list, got 'a'"),
        ({"type": "object", "default": [1]}, ".default", "k is an object, got [1]"),
        ({"type": "string", "default": None}, ".default", "k is a string, got null"),
        (
            {"type": "string", "enum": ["fast", "slow"], "default": "fsat"},
            ".default",
            "k is one of 'fast', 'slow', got 'fsat'; did you mean 'fast'?",
        ),
        (
            {"type": "integer", "enum": [0, 1], "minimum": 1, "default": 0},
            ".default",
            "k is at least 1, got 0",
        ),
        ({"type": "number", "maximum": 0.5, "default": 1}, ".default", "k is at most 0.5, got 1"),
        (
            {"type": "string", "pattern": "^[a-z]+$", "default": "A"},
            ".default",
            "k is a string that matches '^[a-z]+$', got 'A'",
        ),
        (
            {"type": "string", "pattern": "^[a-z]+$", "default": "\ud83d"},
            ".default",
            "k is a string that matches '^[a-z]+$', got '\\ud83d'",
        ),
        (
            {"type": "list", "items": "number", "default": [1, "b"]},
            ".default",
            "k has elements of the type number; element 1 is a number, got 'b'",
        ),
        (
            {"type": "list", "maxItems": 1, "default": [1, 2]},
            ".default",
            "k has 2 elements, of at most 1",
        ),
        (
            {"type": "list", "default": [0] * 10_001},
            ".default",
            "k has 10001 elements, of at most 10000",
        ),
        (
            {"type": "object", "schema": {"required": ["a"]}, "default": {"b": 1}},
            ".default",
            "k does not satisfy its schema at $: 'a' is a required property",
        ),
        (
            {"type": "integer", "default": 4, "minimun": 1},
            ".minimun",
            "a declaration has no field 'minimun'; did you mean 'minimum'?",
        ),
        (
            {"type": "integer", "default": 4, "required": True},
            ".required",
            "a parameter with a default is never missing; leave one of them out",
        ),
        (
            {"type": "string", "default": "a", "minimum": 1},
            ".minimum",
            "minimum is for an integer or a number, this is a string",
        ),
        (
            {"type": "integer", "default": 1, "required": "yes"},
            ".required",
            "expected true or false, got 'yes'",
        ),
        (
            {"type": "list", "default": [], "items": "float"},
            ".items",
            "expected one of string, integer, number, boolean, list, object, got 'float'",
        ),
        (
            {"type": "string", "default": "a", "enum": []},
            ".enum",
            "expected a list of values, not empty",
        ),
        (
            {"type": "string", "default": "a", "pattern": "("},
            ".pattern",
            "this is not a regular expression of RE2: missing ): (",
        ),
    ],
)
def test_a_wrong_declaration_or_value_is_reported_once(
    problems: Any, entry: dict[str, Any], place: str, message: str
) -> None:
    step = {"with": {"value": "${params.k}"}, "timeout": "${params.k}", "when": "params.k > 1"}
    assert problems(step, params={"k": entry}) == {f"spec.params.k{place}": message}


def test_a_schema_of_a_declaration_must_be_one(problems: Any) -> None:
    entry = {"type": "object", "default": {}, "schema": {"type": "thing"}}
    (message,) = problems({}, params={"k": entry}).values()
    assert message.startswith("schema cannot be used: ")


def test_all_required_parameters_are_named_at_once_with_their_lines() -> None:
    assert told(
        "  params:\n"
        "    model: {type: string, required: true}\n"
        "    k: 4\n"
        "    lrs: {type: list, items: number}\n"
        "  inputs: {base: {model: '${params.model}'}}\n"
        "  steps:\n"
        "  - name: a\n"
        "    uses: test.noop\n"
        "    matrix: {lr: '${params.lrs}'}\n"
        "    with: {value: '${matrix.lr}'}\n"
        "  - name: b\n"
        "    uses: test.noop\n"
        "    inputs: {x: 'a[lr=1].metrics'}\n"
    ) == [
        "2:5: spec.params.model: params.model is required: write a value, or a default here",
        "4:5: spec.params.lrs: params.lrs is required: write a value, or a default here",
    ]


@pytest.mark.parametrize("entry", [SAMPLES, {"type": "integer", "enum": [1, 4.0]}])
@pytest.mark.parametrize("value", [1, 1.0])
def test_one_and_1_0_of_an_integer_are_the_same_value_and_give_the_same_plan(
    compiled: Any, entry: dict[str, Any], value: Any
) -> None:
    """The API server stores 1.0 as 1; a plan is the same wherever its file was read."""

    def plan(default: Any) -> Plan:
        step = {"matrix": {"n": ["${params.k}"]}, "with": {"value": "${params.k}"}}
        params = {"k": {**entry, "default": default}}
        made: Plan = compiled({**step, "when": "params.k / 2 == 0"}, params=params)
        return made

    assert plan(value) == plan(1)
    assert type(plan(value).params["k"]) is int


def test_a_list_of_integers_has_integers_for_1_0(compiled: Any) -> None:
    entry = {"type": "list", "items": "integer", "default": [1.0, 2]}
    (a, b) = compiled({"matrix": {"n": "${params.k}"}}, params={"k": entry}).params["k"]
    assert (type(a), type(b)) == (int, int)


# -- a value that is right in itself and wrong where it is filled in ------------------------------


@pytest.mark.parametrize(
    ("line", "params", "expected"),
    [
        (
            "budgetUsd: '${params.b}'",
            "{b: 5}",
            'spec.budgetUsd: expected an amount of dollars in quotes, such as "0.50", got the'
            " number 5 (from ${params.b})",
        ),
        (
            "deadline: '${params.b}'",
            "{b: soon}",
            "spec.deadline: expected a duration such as 90s, 30m, 12h or 30d, got the string"
            " 'soon' (from ${params.b})",
        ),
        (
            "inputs: {base: {model: '${params.m}'}}",
            "{m: smollm}",
            "spec.inputs.base.model: no built-in model 'smollm' (a file or directory is written"
            " ./smollm, a hub's hf://org/name); did you mean 'smollm2-135m-instruct'? (from"
            " ${params.m})",
        ),
        (
            "inputs: {q: {dataset: hf://datasets/a/b, limit: '${params.n}'}}",
            "{n: 0}",
            "spec.inputs.q.limit: expected at least 1, got the number 0 (from ${params.n})",
        ),
        (
            "budgetUsd: '${params.bugdet}'",
            "{budget: '1'}",
            "spec.budgetUsd: no 'bugdet' in params; did you mean 'budget'?",
        ),
        (
            "budgetUsd: '${params.budget'",
            "{budget: '1'}",
            "spec.budgetUsd: '${params.budget' has no closing brace; write $${ for a plain ${",
        ),
        (
            "priority: '${params.p}'",
            "{p: 1}",
            "spec.priority: ${params.p} is not filled in here; write the value",
        ),
        (
            "inputs: {q: {configMap: {name: '${params.c}', key: q.jsonl}}}",
            "{c: rows}",
            "spec.inputs.q.configMap.name: ${params.c} is not filled in here; write the value",
        ),
        (
            "secrets: {HF_TOKEN: {name: '${params.s}', key: token}}",
            "{s: hub}",
            "spec.secrets.HF_TOKEN.name: ${params.s} is not filled in here; write the value",
        ),
    ],
)
def test_an_error_of_a_filled_value_names_the_place_and_the_parameter(
    line: str, params: str, expected: str
) -> None:
    steps = "  steps: [{name: a, uses: test.noop}]\n"
    (found,) = told(f"{steps}  {line}\n  params: {params}\n")
    assert found.startswith("2:")
    assert found.partition(": ")[2] == expected


@pytest.mark.parametrize(
    ("line", "params", "expected"),
    [
        (
            "matrix: {lr: '${params.x}'}",
            "{x: 5}",
            "matrix.lr: expected a list, got the number 5 (from ${params.x})",
        ),
        (
            "matrix: {lr: '${params.x}'}",
            "{x: [1, 1]}",
            "matrix.lr[1]: 1 is listed twice (from ${params.x})",
        ),
        (
            "resources: {memory: '${params.x}'}",
            "{x: 4}",
            "resources.memory: expected an amount of memory such as 4Gi or 512Mi, got the number 4"
            " (from ${params.x})",
        ),
        (
            "retry: {attempts: '${params.x}'}",
            "{x: 21}",
            "retry.attempts: expected at most 20, got the number 21 (from ${params.x})",
        ),
        (
            "cache: {reuse: '${params.x}'}",
            "{x: sometimes}",
            "cache.reuse: expected one of always, run, never, got the string 'sometimes'"
            " (from ${params.x})",
        ),
        (
            "timeout: '${params.x} minutes'",
            "{x: 4}",
            "timeout: expected a duration such as 90s, 30m, 12h or 30d, got the string"
            " '4 minutes' (from ${params.x})",
        ),
        (
            "resources: '${params.x}'",
            "{x: {memory: 4Gi}}",
            "resources: ${params.x} is an object, which is not filled in here; name its fields",
        ),
        (
            "name: '${params.x}'",
            "{x: b}",
            "name: ${params.x} is not filled in here; write the value",
        ),
        (
            "uses: '${params.x}'",
            "{x: test.noop}",
            "uses: ${params.x} is not filled in here; write the value",
        ),
    ],
)
def test_an_error_of_a_filled_value_in_a_step_names_the_place_and_the_parameter(
    line: str, params: str, expected: str
) -> None:
    fields = {"name": "name: a", "uses": "uses: test.noop"} | {line.partition(":")[0]: line}
    step = "\n    ".join(fields.values())
    (found,) = told(f"  steps:\n  - {step}\n  params: {params}\n")
    assert found.partition(": ")[2] == f"spec.steps[0].{expected}"


def test_a_wrong_type_in_with_names_the_parameter(problems: Any) -> None:
    step = {**GENERATE, "with": {"prompt": "{{ question }}", "samples": "${params.k}"}}
    (message,) = problems(step, inputs=INPUTS, params={"k": "four"}).values()
    assert message.startswith("expected an integer, got the string 'four'")
    assert message.endswith("(from ${params.k})")


# -- what follows from a reported problem ---------------------------------------------------------

REFERRING = """\
  - name: two
    uses: test.noop
    inputs: {x: "one[lr=1].metrics"}
    with: {valeu: 1}
  - name: three
    uses: test.noop
    after: ["one[lr=1]"]
    when: "steps['one[lr=1]'].metrics.value > 1"
"""


@pytest.mark.parametrize(
    ("matrix", "place"),
    [
        ('{lr: "${params.rates}"}', "spec.steps[0].matrix.lr"),
        ("{lr: 5}", "spec.steps[0].matrix.lr"),
        ("[lr]", "spec.steps[0].matrix"),
    ],
)
def test_a_wrong_matrix_makes_nothing_else_wrong(matrix: str, place: str) -> None:
    one = (
        "  steps:\n  - name: one\n    uses: test.noop\n"
        f"    matrix: {matrix}\n"
        "    with: {value: \"${matrix.lr}\"}\n    when: \"matrix.lr > 1 && '${matrix.lr}' != ''\"\n"
    )
    found = told(one + REFERRING)
    assert [line.split(": ")[1] for line in found] == [place, "spec.steps[1].with.valeu"]


@pytest.mark.parametrize(
    "name",
    ["name: a b", "name: [a]", "name: 5", "nmae: one"],
)
def test_a_wrong_name_of_a_step_hides_no_other_problem_and_makes_none(name: str) -> None:
    bad = name.partition(": ")[2]
    found = told(
        f"  steps:\n  - {name}\n    uses: test.noop\n    with: {{valeu: 1}}\n"
        f"  - name: two\n    uses: test.noop\n    inputs: {{x: '{bad}.metrics'}}\n"
        f"    after: ['{bad}']\n    when: \"steps['{bad}'].metrics.value > 1\"\n"
        "  - name: three\n    uses: test.nop\n  outputs: {o: two.metricz}\n"
    )
    places = {line.split(": ")[1] for line in found}
    first = {"spec.steps[0].name"} | ({"spec.steps[0].nmae"} if "nmae" in name else set())
    assert places == first | {
        "spec.steps[0].with.valeu",
        "spec.steps[2].uses",
        "spec.outputs.o",
    }


def test_one_wrong_name_of_a_step_excuses_no_other_unknown_name() -> None:
    found = told(
        "  steps:\n  - {name: a b, uses: test.noop}\n"
        "  - {name: two, uses: test.noop, inputs: {x: on.metrics}}\n"
    )
    assert [line.split(": ")[1] for line in found] == [
        "spec.steps[0].name",
        "spec.steps[1].inputs.x",
    ]


@pytest.mark.parametrize("name", ["one", "inputs"])
def test_a_name_that_is_taken_hides_no_other_problem_of_its_step(problems: Any, name: str) -> None:
    found = problems({"name": "one"}, {"name": name, "with": {"valeu": 1}}, {"after": ["no"]})
    assert list(found) == [
        "spec.steps[1].name",
        "spec.steps[2].after[0]",
        "spec.steps[1].with.valeu",
    ]
    assert found["spec.steps[2].after[0]"].endswith("there is one, c")


@pytest.mark.parametrize(
    ("params", "place"),
    [
        ("[a]", "spec.params"),
        ("{k: {type: integer, default: x}}", "spec.params.k.default"),
        ("{'k-1': 1, k: {type: integer}}", None),
    ],
)
def test_wrong_parameters_hide_no_other_problem_and_make_none(
    params: str, place: str | None
) -> None:
    found = told(
        f"  params: {params}\n  budgetUsd: '${{params.k}}'\n"
        "  inputs: {base: {model: '${params.k}'}, q: {rows: '${params.k}'}}\n"
        "  steps:\n  - name: a\n    uses: test.noop\n    timeout: '${params.k}m'\n"
        "    with: {value: 'x${params.k}', valeu: 1}\n    when: 'params.k > 1'\n"
        "  - name: b\n    uses: llm.generate\n"
        "    inputs: {model: inputs.base, rows: inputs.q}\n    with: {prompt: '{{ x }}'}\n"
    )
    places = [line.split(": ")[1] for line in found]
    own = [place] if place else ["spec.params.k-1", "spec.params.k"]
    assert places == [*own, "spec.steps[0].with.valeu"]


@pytest.mark.parametrize(
    ("inputs", "place"),
    [
        ("[base]", "spec.inputs"),
        ("{base: 5}", "spec.inputs.base"),
        ("{base: {model: 5}}", "spec.inputs.base.model"),
        ("{base: {configMap: {name: x}}}", "spec.inputs.base.configMap.key"),
        ("{base: {model: '${params.no}'}}", "spec.inputs.base.model"),
    ],
)
def test_a_wrong_input_hides_no_other_problem_and_makes_none(inputs: str, place: str) -> None:
    found = told(
        f"  inputs: {inputs}\n  steps:\n"
        "  - {name: a, uses: test.map, inputs: {rows: inputs.base}, with: {valeu: 1}}\n"
    )
    assert [line.split(": ")[1] for line in found] == [place, "spec.steps[0].with.valeu"]


@pytest.mark.parametrize(
    "line",
    ["weights: {alpha: 1, beta: 2}", "secrets: {S: {name: x}}", "outputs: [a]", "budgetUsd: 5"],
)
def test_a_wrong_field_of_the_spec_hides_no_problem_of_a_step(line: str) -> None:
    found = told(f"  {line}\n  steps: [{{name: a, uses: test.noop, with: {{valeu: 1}}}}]\n")
    assert len(found) == 2
    assert "spec.steps[0].with.valeu" in found[1]


def test_a_wrong_name_of_the_workflow_hides_no_problem_of_a_step() -> None:
    text = HEAD.replace("name: x", "name: X Y") + "  steps: [{name: a, uses: test.nop}, 7]\n"
    (loaded,), _ = load_text(text)
    found = [p.path for p in check_loaded(loaded, builtin_catalog())]
    assert sorted(found) == ["metadata.name", "spec.steps[0].uses", "spec.steps[1]"]


def test_every_combination_of_one_mistake_in_each_part_is_reported_as_those_parts_alone() -> None:
    """No part's mistake changes what is said of another part."""
    parts = {
        "params": ("  params: {k: {type: integer, default: x}}\n", "  params: {k: 1}\n"),
        "inputs": ("  inputs: {q: {limit: 0}}\n", "  inputs: {q: {rows: [{a: '1'}]}}\n"),
        "outputs": ("  outputs: {o: a.metricz}\n", "  outputs: {o: a.rows}\n"),
        "steps": (
            "  steps:\n  - {name: a, uses: test.map, inputs: {rows: inputs.q}, timeout: x}\n",
            "  steps:\n  - {name: a, uses: test.map, inputs: {rows: inputs.q}}\n",
        ),
    }

    def of(wrong: tuple[str, ...]) -> set[str]:
        text = "".join(bad if part in wrong else good for part, (bad, good) in parts.items())
        return {line.partition(": ")[2] for line in told(text)}

    assert of(()) == set()
    alone = {part: of((part,)) for part in parts}
    assert all(len(found) >= 1 for found in alone.values())
    for number in (2, 3, 4):
        for wrong in itertools.combinations(parts, number):
            assert of(wrong) == set().union(*(alone[part] for part in wrong)), wrong


def test_all_of_many_unknown_names_are_told_and_the_first_with_hints() -> None:
    def misspelt(count: int) -> dict[str, Any]:
        params = {f"param_number_{i}": 1 for i in range(1000)}
        rows = [{"a": f"${{params.param_numbre{i}}}"} for i in range(count)]
        return {
            "apiVersion": "flowmesh.dev/v1alpha1",
            "kind": "FlowMeshWorkflow",
            "metadata": {"name": "w"},
            "spec": {"params": params, "inputs": {"q": {"rows": rows}}, "steps": []},
        }

    # A hint compares a name with all others, so only the first names get one.
    few, many = (calls_of(lambda n=n: read_object(misspelt(n))) for n in (500, 1000))
    assert many < 1.2 * few
    _, problems = read_object(misspelt(1000))
    told = [p.message for p in problems if p.message.startswith("no 'param_numbre")]
    assert len(told) == 1000
    assert told[0].endswith("; did you mean 'param_number_0'?")


def test_rows_may_be_a_list_parameter() -> None:
    spec = {
        "params": {"rows": {"type": "list", "items": "object", "default": ROWS}},
        "inputs": {"q": {"rows": "${params.rows}"}},
        "steps": [{"name": "a", "uses": "test.map", "inputs": {"rows": "inputs.q"}}],
    }
    assert len(as_plan(spec).steps) == 1
