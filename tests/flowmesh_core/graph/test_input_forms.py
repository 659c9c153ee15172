"""Lists of sources, ``firstOf``, ``whenSkipped`` and ``after``: what the compiler makes of them."""

from typing import Any

import pytest
from tests.flowmesh_core.graph.conftest import Compile, Problems, build
from tests.flowmesh_core.graph.steps import ROWS, SQL

from flowmesh_core.graph.plan import Edge, Plan, StepSource
from flowmesh_core.graph.render import mermaid

INPUTS = {
    "base": {"model": "smollm2-135m-instruct"},
    "other": {"model": "smollm2-135m-instruct"},
    "questions": {"rows": ROWS},
    "answers": {"rows": [{"question": "2+2?", "target": "4"}]},
    "names": {"rows": [{"name": "Ada"}]},
}
MAP = {"uses": "test.map", "inputs": {"rows": "inputs.questions"}}
CODE = {"uses": "code.python", "with": {"code": "def main(rows, hint=None):\n  return rows"}}


def mapped(rows: Any, **more: Any) -> dict[str, Any]:
    return {"uses": "test.map", "inputs": {"rows": rows}, **more}


def edge(plan: Plan, path: str, port: str = "rows") -> Edge:
    (step,) = (s for s in plan.steps if s.path == path)
    return next(e for e in step.edges if e.port == port)


def test_a_list_joins_its_sources_in_order(compiled: Compile) -> None:
    plan = compiled(MAP, MAP, mapped(["b.rows", "a.rows"]), inputs=INPUTS)
    found = edge(plan, "c")
    assert found.sources == (StepSource("b", "rows"), StepSource("a", "rows"))
    assert (found.concatenate, found.pick, found.when_skipped) == (True, "all", "skip")
    assert plan.level == 1, "an older release joins several sources as well"


def test_all_instances_of_a_matrix_may_stand_in_a_list(compiled: Compile) -> None:
    plan = compiled(
        {**MAP, "matrix": {"i": [1, 2]}}, MAP, mapped(["a[*].rows", "b.rows"]), inputs=INPUTS
    )
    assert [s.step for s in edge(plan, "c").sources] == ["a[i=1]", "a[i=2]", "b"]  # type: ignore[union-attr]


def test_a_list_of_one_source_is_that_source(compiled: Compile) -> None:
    plan = compiled(MAP, mapped(["a.rows"]), inputs=INPUTS)
    assert edge(plan, "b") == Edge("rows", "dataset", (StepSource("a", "rows"),))


def test_first_of_takes_any_kind_and_needs_a_newer_release(compiled: Compile) -> None:
    ask = {
        "uses": "llm.generate",
        "inputs": {
            "model": {"firstOf": ["inputs.base", "inputs.other"]},
            "rows": "inputs.questions",
        },
        "with": {"prompt": "{{ question }}"},
    }
    plan = compiled(ask, inputs=INPUTS)
    found = edge(plan, "a", "model")
    assert (found.pick, found.concatenate, len(found.sources)) == ("first", False, 2)
    assert plan.level == 4


def test_an_empty_data_set_has_the_columns_of_its_source(compiled: Compile) -> None:
    sql = {**SQL, "inputs": {"a": {"from": "a.rows", "whenSkipped": "empty"}}}
    plan = compiled({**MAP, "when": "params.go"}, sql, inputs=INPUTS, params={"go": False})
    found = edge(plan, "b", "a")
    assert found.when_skipped == "empty"
    assert found.empty_columns == {"mapped": "string", "question": "string", "target": "string"}
    assert plan.level == 4


def test_unknown_columns_of_an_empty_data_set_must_be_written(
    compiled: Compile, problems: Problems
) -> None:
    source = {**CODE, "inputs": {"rows": "inputs.questions"}}

    def sql(when_skipped: Any) -> dict[str, Any]:
        return {**SQL, "inputs": {"a": {"from": "a.rows", "whenSkipped": when_skipped}}}

    assert problems(source, sql("empty"), inputs=INPUTS) == {
        "spec.steps[1].inputs.a.whenSkipped": "the columns of a.rows are not known here; write"
        " whenSkipped: {empty: {question: string}}"
    }
    plan = compiled(source, sql({"empty": {"n": "int"}}), inputs=INPUTS)
    assert edge(plan, "b", "a").empty_columns == {"n": "int"}


def test_written_columns_must_be_those_that_are_known(problems: Problems) -> None:
    sql = {**SQL, "inputs": {"a": {"from": "a.rows", "whenSkipped": {"empty": {"n": "int"}}}}}
    assert problems(MAP, sql, inputs=INPUTS) == {
        "spec.steps[1].inputs.a.whenSkipped": "a.rows has the columns mapped, question, target"
    }


def test_absent_is_refused_where_the_engine_cannot_do_without(problems: Problems) -> None:
    absent = {"from": "a.model", "whenSkipped": "absent"}
    train = {
        "uses": "train.sft",
        "inputs": {"model": "inputs.base", "rows": "inputs.questions"},
        "with": {"text": "{{ question }}", "use_peft": False},
    }
    ask = {
        "uses": "llm.generate",
        "inputs": {"model": absent, "rows": "inputs.questions"},
        "with": {"prompt": "{{ question }}"},
    }
    assert problems(train, ask, inputs=INPUTS) == {
        "spec.steps[1].inputs.model.whenSkipped": "llm.generate needs 'model'; use firstOf, or let"
        " it skip"
    }


def test_a_table_of_a_query_cannot_be_absent(problems: Problems) -> None:
    sql = {**SQL, "inputs": {"a": {"from": "a.rows", "whenSkipped": "absent"}}}
    assert problems(MAP, sql, inputs=INPUTS) == {
        "spec.steps[1].inputs.a.whenSkipped": "the query of data.sql reads 'a'; write whenSkipped:"
        " empty"
    }


def test_an_argument_that_may_be_absent_has_a_default(problems: Problems) -> None:
    inputs = {"rows": "a.rows", "hint": {"from": "b.rows", "whenSkipped": "absent"}}
    assert not problems(MAP, MAP, {**CODE, "inputs": inputs}, inputs=INPUTS)
    for arguments, good in (
        ("rows, hint", False),
        ("rows, *, hint", False),
        ("rows, *, hint=()", True),
        ("rows, **tables", True),
    ):
        code = {"code": f"def main({arguments}):\n  return rows"}
        found = problems(MAP, MAP, {**CODE, "inputs": inputs, "with": code}, inputs=INPUTS)
        wrong = {
            "spec.steps[2].inputs.hint": "main() needs 'hint', which may be absent: give it a"
            " default"
        }
        assert found == ({} if good else wrong), arguments


def test_the_columns_of_a_list_must_be_the_same(problems: Problems) -> None:
    assert problems(mapped(["inputs.questions", "inputs.names"]), inputs=INPUTS) == {
        "spec.steps[0].inputs.rows": "inputs.questions has no column 'name', and inputs.names has;"
        " cast or rename them first, for example with data.sql"
    }
    numbers = {**INPUTS, "numbers": {"rows": [{"question": 1, "target": "2"}]}}
    assert problems(mapped(["inputs.questions", "inputs.numbers"]), inputs=numbers) == {
        "spec.steps[0].inputs.rows": "column 'question' is string in inputs.questions and int in"
        " inputs.numbers; cast or rename them first, for example with data.sql"
    }


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        (3, "", "expected a source such as inputs.rows, a list of sources"),
        (None, "", "expected a source such as inputs.rows, a list of sources"),
        ([], "", "expected at least one source"),
        (["inputs.questions", 3], "[1]", "expected a source such as inputs.rows, got the number 3"),
        ({"firstOf": "a.rows"}, ".firstOf", "expected a list of sources, got the string 'a.rows'"),
        ({"firstOf": []}, ".firstOf", "expected at least one source"),
        ({"fristOf": ["a.rows"]}, ".fristOf", "no field 'fristOf' here; did you mean 'firstOf'?"),
        ({}, "", "expected exactly one of firstOf and from, got neither"),
        (
            {"firstOf": ["inputs.questions"], "from": "inputs.questions"},
            "",
            "expected exactly one of firstOf and from, got both",
        ),
        ({"from": {"firstOf": []}}, ".from", "expected a source or a list of sources, got a map"),
        (
            {"from": "inputs.questions", "whenSkipped": "abscent"},
            ".whenSkipped",
            "expected skip, absent, empty or {empty: {column: type}}, got the string 'abscent'; did"
            " you mean 'absent'?",
        ),
        (
            {"from": "inputs.questions", "whenSkipped": {"empty": {"n": "integer"}}},
            ".whenSkipped.empty",
            "column 'n': 'integer' is not a column type",
        ),
        (["inputs.questions"] * 257, "", "257 sources, of at most 256; write <step>[*].<port>"),
        ({"firstOf": ["m[*].rows"]}, ".firstOf[0]", "firstOf takes single sources"),
        (["inputs.questions", "inputs.base"], "[1]", "inputs.base is a model, expected a data set"),
    ],
)
def test_another_form_is_refused_with_its_place(
    problems: Problems, value: Any, path: str, message: str
) -> None:
    many = {**MAP, "name": "m", "matrix": {"i": [1, 2]}}
    found = problems(many, {**mapped(value), "name": "x"}, inputs=INPUTS)
    assert list(found) == [f"spec.steps[1].inputs.rows{path}"], found
    assert next(iter(found.values())).startswith(message), found


def test_a_list_of_models_is_refused(problems: Problems) -> None:
    ask = {
        "uses": "llm.generate",
        "inputs": {"model": ["inputs.base", "inputs.other"], "rows": "inputs.questions"},
        "with": {"prompt": "{{ question }}"},
    }
    assert problems(ask, inputs=INPUTS) == {
        "spec.steps[0].inputs.model": "a list joins data sets, not models; write {firstOf: [...]}"
    }


def test_after_orders_steps_without_an_input(compiled: Compile) -> None:
    plan = compiled({"after": ["b"]}, {"name": "b", "matrix": {"i": [1, 2]}}, {"after": ["b[i=2]"]})
    after = {s.path: s.after for s in plan.steps}
    assert after == {"b[i=1]": (), "b[i=2]": (), "a": ("b[i=1]", "b[i=2]"), "c": ("b[i=2]",)}
    assert plan.level == 4
    assert plan.steps[-1].parents() == ("b[i=2]",)


def test_an_unknown_step_after_which_to_run_is_named(problems: Problems) -> None:
    assert problems({"after": ["warmup"]}, {"name": "warm-up"}) == {
        "spec.steps[0].after[0]": "no step 'warmup'; did you mean 'warm-up'?"
    }
    assert problems({"after": ["b.metrics"]}, {}) == {
        "spec.steps[0].after[0]": "'b.metrics' is not a step; write <step> or <step>[name=value];"
        " did you mean 'b'?"
    }
    assert problems({"after": ["a"]}) == {"spec.steps[0]": "the steps wait for each other: a → a"}


def test_a_diagram_shows_optional_inputs_dotted(compiled: Compile) -> None:
    optional = {"from": "a.rows", "whenSkipped": "absent"}
    code = {**CODE, "inputs": {"rows": "b.rows", "hint": optional}, "after": ["c"]}
    drawn = mermaid(compiled(MAP, MAP, {}, code, inputs=INPUTS))
    assert "-.->|hint|" in drawn
    assert "-->|rows|" in drawn
    assert "-.->|after|" in drawn


def test_the_builder_keeps_what_the_author_wrote() -> None:
    form = {"from": ["a.rows", "b.rows"], "whenSkipped": "empty"}
    assert build([mapped(form)]).spec.steps[0].inputs == {"rows": form}
