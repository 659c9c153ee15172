"""Queries are bound at admission, on the columns that are known."""

from typing import Any

import pytest
from tests.flowmesh_core.graph.conftest import Compile, Problems

from flowmesh_core.dataset.schema import ColumnType
from flowmesh_core.dataset.sql_binding import bound_columns

ROWS = [{"question": "1+1?", "n": 1, "score": 0.5, "tags": {"a": 1}}]
INPUTS = {"rows": {"rows": ROWS}, "base": {"model": "smollm2-135m-instruct"}}


def sql(query: str, **inputs: Any) -> dict[str, Any]:
    return {
        "uses": "data.sql",
        "inputs": inputs or {"rows": "inputs.rows"},
        "with": {"query": query},
    }


def test_an_unknown_column_is_refused_with_the_tables(problems: Problems) -> None:
    found = problems(sql("select question,\n  quesion\nfrom rows"), inputs=INPUTS)
    (message,) = found.values()
    assert list(found) == ["spec.steps[0].with.query"]
    assert message.startswith('SQL: Binder Error: Referenced column "quesion" not found')
    assert "(line 2: quesion); correct the query; tables: rows(n, question, score, tags)" in message


def test_types_that_do_not_fit_are_refused(problems: Problems) -> None:
    (message,) = problems(sql("select sum(question) as s from rows"), inputs=INPUTS).values()
    assert "No function matches the given name and argument types 'sum(VARCHAR)'" in message


@pytest.mark.parametrize(
    "query",
    [
        f"select {'case when n = 1 then ' * 900}1{' end' * 900} as n from rows",
        "select " + "{'a': " * 900 + "1" + "}" * 900 + " as n from rows",
    ],
)
def test_a_query_that_is_nested_too_deeply_is_refused(problems: Problems, query: str) -> None:
    (message,) = problems(sql(query), inputs=INPUTS).values()
    assert message.startswith("the query is nested too deeply")


def test_the_columns_of_a_result_are_known_to_the_next_steps(problems: Problems) -> None:
    first = sql("select question, avg(score) as mean from rows group by all")
    ask = {
        "uses": "http.request",
        "inputs": {"rows": "a.rows"},
        "with": {"url": "https://example.org/{{ question }}/{{ maen }}"},
    }
    found = problems(first, ask, inputs=INPUTS)
    assert found == {
        "spec.steps[1].with.url": "the template names 'maen', and the rows have no such column; did"
        " you mean 'mean'?"
    }
    assert problems(first, sql("select score from t", t="a.rows"), inputs=INPUTS).keys() == {
        "spec.steps[1].with.query"
    }


def test_columns_that_a_row_wise_engine_adds_are_known_with_their_types(problems: Problems) -> None:
    ask = {
        "uses": "llm.generate",
        "inputs": {"model": "inputs.base", "rows": "inputs.rows"},
        "with": {"prompt": "{{ question }}", "output": "said"},
    }
    good = "select max(sample) + 1 as n, length(said) as l from rows group by all"
    assert not problems(ask, sql(good, rows="a.rows"), inputs=INPUTS)
    (message,) = problems(
        ask, sql("select completion from rows", rows="a.rows"), inputs=INPUTS
    ).values()
    assert 'Referenced column "completion" not found' in message


def test_a_query_over_unknown_columns_waits_for_its_rows(problems: Problems) -> None:
    code = {"uses": "code.python", "inputs": {}, "with": {"code": "def main():\n  return []"}}
    assert not problems(code, sql("select anything from rows", rows="a.rows"), inputs=INPUTS)


NO_ROWS = {"rows": {"rows": []}, "base": {"model": "smollm2-135m-instruct"}}
ASK = {
    "uses": "llm.generate",
    "inputs": {"model": "inputs.base", "rows": "inputs.rows"},
    "with": {"prompt": "{{ question }}"},
}


def test_a_query_that_names_a_column_of_an_empty_input_is_refused_before_a_model_is_loaded(
    problems: Problems,
) -> None:
    (message,) = problems(sql("select question from rows"), inputs=NO_ROWS).values()
    assert 'Referenced column "question"' in message
    assert "'rows' comes from inputs.rows, which has 0 rows and so no columns" in message
    asked = sql("select question, completion from t", t="a.rows")
    found = problems(ASK, asked, inputs=NO_ROWS)
    assert list(found) == ["spec.steps[1].with.query"]
    assert "'t' comes from inputs.rows, which has 0 rows" in next(iter(found.values()))


def test_a_query_that_names_no_column_of_an_empty_input_is_accepted(problems: Problems) -> None:
    for query in ("select count(*) as n from t", "select * from t", "select completion from t"):
        assert not problems(ASK, sql(query, t="a.rows"), inputs=NO_ROWS)
    guarded = {**sql("select question from t", t="a.rows"), "when": "steps['a'].rows.count > 0"}
    assert not problems(ASK, guarded, inputs=NO_ROWS)


def test_the_columns_of_an_empty_table_are_those_of_a_bound_query(compiled: Compile) -> None:
    first = {**sql("select question, n from rows"), "when": "params.go"}
    second = sql("select * from t", t={"from": "a.rows", "whenSkipped": "empty"})
    plan = compiled(first, second, inputs=INPUTS, params={"go": False})
    assert plan.steps[1].edges[0].empty_columns == {"n": "int", "question": "string"}


def test_every_type_of_a_column_keeps_its_type() -> None:
    kinds = {kind.value.replace("<", "_").strip(">"): kind for kind in ColumnType}
    found = bound_columns("select * from t", {"t": kinds})
    assert found is not None
    lists = {name for name in kinds if name.startswith("list")}
    assert {name for name, kind in found.items() if kind is None} == lists, "a null inside is JSON"
    rest = {name: kind for name, kind in kinds.items() if name not in lists}
    assert {n: found[n] for n in rest} == rest


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("select n, n from rows", "SQL: the result has 'n' more than once"),
        ("select n as a, n as A from rows", ""),
    ],
)
def test_columns_of_a_result_have_names_of_their_own(
    problems: Problems, query: str, problem: str
) -> None:
    found = problems(sql(query), inputs=INPUTS)
    assert [m.startswith(problem) for m in found.values()] == ([True] if problem else [])


def test_columns_that_sql_cannot_tell_apart_are_refused(problems: Problems) -> None:
    inputs = {"rows": {"rows": [{"Name": "a", "name": "b"}]}}
    assert problems(sql("select 1 as one from rows"), inputs=inputs) == {
        "spec.steps[0].with.query": "input 'rows' has the columns 'Name' and 'name', which are one"
        " in SQL; rename one of them in a step before, with code.python for example"
    }
