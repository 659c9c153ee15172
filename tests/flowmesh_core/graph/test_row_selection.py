"""Inputs with config, split, revision, limit and columns: steps, names, refusals."""

from typing import Any

import pytest

HUB = "hf://datasets/openai/gsm8k"
READ = {"uses": "data.sql", "inputs": {"rows": "inputs.x"}, "with": {"query": "from rows"}}
COMMIT = "a" * 40


def steps(compiled: Any, **given: Any) -> list[Any]:
    plan = compiled(READ, inputs={"x": given}, columns={"x": ["a", "b"]})
    return list(plan.steps[:-1])


def params(step: Any) -> dict[str, Any]:
    return {n: v for n, v in step.params.items() if v not in (None, "", "auto", False)}


def test_a_name_that_may_change_is_resolved_with_its_part_and_then_imported(compiled: Any) -> None:
    given = {"dataset": HUB, "config": "main", "split": "train", "limit": 100, "columns": ["a"]}
    pin, load = steps(compiled, **given, revision="v1")
    assert params(pin) == {
        "uri": f"{HUB}@v1",
        "kind": "dataset",
        "config": "main",
        "split": "train",
    }
    assert params(load) == {"uri": f"{HUB}@v1", "limit": 100, "columns": ["a"]}
    assert (pin.minor, load.minor) == (1, 1)


def test_a_commit_is_imported_without_a_step_that_resolves_it(compiled: Any) -> None:
    (load,) = steps(compiled, dataset=HUB, config="main", split="train", revision=COMMIT)
    assert params(load) == {"uri": HUB, "revision": COMMIT, "config": "main", "split": "train"}


def test_an_address_without_a_part_makes_the_steps_that_it_made_before(compiled: Any) -> None:
    pin, load = steps(compiled, dataset=HUB)
    assert (pin.minor, load.minor) == (0, 0)
    assert [s.minor for s in steps(compiled, dataset="s3://b/rows.jsonl")] == [0, 0]


@pytest.mark.parametrize("address", ["s3://b/rows.jsonl", "https://example.com/rows.csv"])
def test_rows_and_columns_are_chosen_of_every_address(compiled: Any, address: str) -> None:
    _, load = steps(compiled, dataset=address, limit=5, columns=["b"])
    assert params(load) == {"uri": address, "limit": 5, "columns": ["b"]}


def test_of_a_local_file_they_are_chosen_by_a_step_that_reads_its_rows(compiled: Any) -> None:
    (select,) = steps(compiled, dataset="./x.jsonl", limit=5, columns=["b"])
    assert select.engine == "dataset.import"
    assert params(select) == {"uri": "stored:", "limit": 5, "columns": ["b"]}
    assert [e.port for e in select.edges] == ["rows"]
    assert steps(compiled, dataset="./x.jsonl") == []


def test_chosen_columns_are_known_to_the_steps_after(problems: Any) -> None:
    wrong = {"uses": "eval.exact-match", "inputs": {"rows": "inputs.x"}}
    wrong["with"] = {"prediction": "a", "target": "c"}
    given = {"dataset": "s3://b/rows.jsonl", "columns": ["a", "b"]}
    assert problems(wrong, inputs={"x": given}) == {
        "spec.steps[0].with.target": "no column 'c' in the rows; there is a, b"
    }
    local = {"x": {"dataset": "./x.jsonl", "columns": ["a", "d"]}}
    assert problems(READ, inputs=local, columns={"x": ["a", "b"]}) == {
        "spec.inputs.x.columns[1]": "no column 'd' in the rows; there is a, b"
    }


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        (
            {"dataset": "s3://b/x.csv", "split": "train"},
            "split",
            "split belongs to a Hugging Face data set; this is s3://",
        ),
        (
            {"dataset": "https://example.com/x.csv", "config": "main"},
            "config",
            "config belongs to a Hugging Face data set; this is https://",
        ),
        (
            {"dataset": "./x.csv", "revision": "main"},
            "revision",
            "revision belongs to a Hugging Face address; this is a local file",
        ),
        (
            {"model": "smollm2-135m-instruct", "split": "train"},
            "split",
            "split belongs to a Hugging Face data set; this is a model",
        ),
        (
            {"model": "hf://org/name", "limit": 5},
            "limit",
            "limit belongs to a dataset; this is a model",
        ),
        (
            {"rows": [{"a": 1}], "limit": 5},
            "limit",
            "limit belongs to a dataset; these are rows in the file itself",
        ),
        (
            {"dataset": f"{HUB}@v1", "revision": "v2"},
            "revision",
            f"{HUB}@v1 names a revision already; leave one of the two out",
        ),
        (
            {"dataset": f"{HUB}/x.parquet", "split": "train"},
            "split",
            "split chooses among files, but the address names one",
        ),
        (
            {"dataset": HUB, "split": "train[:1%]"},
            "split",
            "'train[:1%]' is a slice; write the split alone, and the number of rows in limit",
        ),
        ({"dataset": HUB, "columns": ["a", "a"]}, "columns", "a column is listed twice"),
    ],
)
def test_a_field_that_an_input_cannot_have_is_refused_with_the_reason(
    problems: Any, given: dict[str, Any], field: str, message: str
) -> None:
    assert problems(READ, inputs={"x": given}) == {f"spec.inputs.x.{field}": message}
