"""Conditions on values."""

from typing import Any

import pytest

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_core.graph import conditions
from flowmesh_core.graph.cel import ConditionError
from flowmesh_core.graph.condition_reads import StepRead, reads
from flowmesh_core.graph.evaluation_budget import EvaluationBudget


def evaluate(text: str, **names: Any) -> bool:
    return conditions.evaluate(text, budget=EvaluationBudget.of(1), **names)


STEPS = {
    "score": {"metrics": {"accuracy": 1, "name": "x"}, "rows": {"count": 10}},
    "tune[lr=1e-5]": {"metrics": {"loss": 0.25}},
    "skipped": None,
}


def _holds(text: str) -> bool:
    return evaluate(
        text,
        params={"samples": 4, "mode": "fast", "tags": ["a", "b"]},
        matrix={"lr": 1e-5, "n": 2.0},
        steps=STEPS,
    )


@pytest.mark.parametrize(
    "text",
    [
        "params.samples > 1",
        "params.samples > 1.5",
        "params.samples == 4.0",
        "matrix.n == 2 && matrix.lr < 1",
        "steps['score'].metrics.accuracy >= 0.5",
        "steps.score.rows.count == 10",
        "steps['tune[lr=1e-5]'].metrics.loss < 0.3",
        "steps['skipped'] == null",
        "steps['score'] != null",
        "params.mode == 'fast' || params.mode == 1",
        "params.mode != 1",
        "'a' in params.tags && size(params.tags) == 2",
        "params.tags.exists(t, t == 'b')",
        "params.mode.startsWith('fa')",
        "has(params.samples) && !has(params.other)",
        "params.samples > 10 ? false : true",
    ],
)
def test_a_condition_that_holds_is_true_and_its_negation_false(text: str) -> None:
    assert _holds(text) is True
    assert _holds(f"!({text})") is False


def test_a_condition_that_reads_a_field_of_a_skipped_step_is_false() -> None:
    assert _holds("steps['skipped'].metrics.x > 1") is False
    assert _holds("!(steps['skipped'].metrics.x > 1)") is False


JUDGED = {
    "metrics": {"mean": None, "count": 0},
    "counts": {"rows": 12, "unparsed": 12},
}


@pytest.mark.parametrize(
    "text",
    [
        *("steps['judge'].metrics.mean > 0.5", "!(steps.judge.metrics.mean >= 0.5)"),
        "steps['judge'].metrics.mean * 2.0 < 1.0",
    ],
)
def test_a_condition_that_compares_a_null_names_it(text: str) -> None:
    with pytest.raises(AttemptError) as caught:
        evaluate(text, params={}, matrix={}, steps={"judge": JUDGED})
    assert caught.value.failure.message == (
        "steps['judge'].metrics.mean is null: 12 of 12 answers contained no verdict"
    )
    assert "!= null" in caught.value.failure.remedy


@pytest.mark.parametrize(
    ("mean", "holds"), [(None, False), (0.4, False), (0.6, True)], ids=["null", "low", "high"]
)
def test_a_condition_may_ask_for_a_null_first(mean: float | None, holds: bool) -> None:
    steps = {"judge": {"metrics": {"mean": mean}}}
    text = "steps['judge'].metrics.mean != null && steps['judge'].metrics.mean > 0.5"
    assert evaluate(text, params={}, matrix={}, steps=steps) is holds


@pytest.mark.parametrize(
    "text", ["params.other > 1", "params.mode > 1", "params.samples", "1 / 0 == 1"]
)
def test_a_condition_that_cannot_be_decided_fails_the_step_as_bad_input(text: str) -> None:
    with pytest.raises(AttemptError) as caught:
        evaluate(text, params={"samples": 4, "mode": "fast"}, matrix={}, steps={})
    assert caught.value.failure.kind is FailureKind.BAD_INPUT
    assert text in caught.value.failure.message


def test_reads_of_a_condition_are_found_anywhere_in_the_expression() -> None:
    found = reads(
        "params.tags.exists(t, t == steps['a'].metrics.x) && has(steps.b) "
        "&& size(steps['c[k=\"v\"]'].rows.count) > matrix.n"
    )
    assert found.steps == (
        StepRead("a", "metrics", "x"),
        StepRead("b"),
        StepRead('c[k="v"]', "rows", "count"),
    )
    assert found.names == (("params", "tags"), ("matrix", "n"))
    assert found.unknown == ()
    assert set(found.functions) == {"exists", "has", "size"}
    assert not found.dynamic
    assert reads("steps[params.x].metrics.y").dynamic


@pytest.mark.parametrize("text", ["!" * 4000 + "true", "(" * 300 + "true" + ")" * 300])
def test_a_condition_nested_too_deeply_is_refused_with_a_readable_message(text: str) -> None:
    with pytest.raises(ConditionError, match="nested too deeply"):
        reads(text)


def test_a_condition_beyond_the_maximum_length_is_refused() -> None:
    with pytest.raises(ConditionError, match="has 5003 characters, of at most 4096"):
        reads("1 " + "+" * 4999 + " 1")


def test_errors_of_a_condition_are_reported_without_class_names() -> None:
    with pytest.raises(AttemptError) as caught:
        evaluate("'a' + 1 == 'b'", params={}, matrix={}, steps={})
    message = caught.value.failure.message
    assert "addition_add applied to '(string, int)'" in message
    with pytest.raises(AttemptError, match="gave 'yes', not true or false"):
        evaluate("'yes'", params={}, matrix={}, steps={})
