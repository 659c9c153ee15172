"""Metrics that conditions read exist, and no condition looks into rows."""

from typing import Any

import pytest
from tests.flowmesh_core.graph.conftest import Compile, Problems

INPUTS = {
    "base": {"model": "smollm2-135m-instruct"},
    "rows": {"rows": [{"said": "a", "target": "a", "n": 1, "choices": ["a", "b"]}]},
}
SCORE = {
    "name": "score",
    "uses": "eval.exact-match",
    "inputs": {"rows": "inputs.rows"},
    "with": {"prediction": "said", "target": "target"},
}
WHEN = "spec.steps[1].when"


def judged(**params: Any) -> dict[str, Any]:
    return {
        "name": "judge",
        "uses": "llm.score",
        "inputs": {"model": "inputs.base", "rows": "inputs.rows"},
        "with": {"method": "judge", "prompt": "{{ said }}", **params},
    }


def asked(query: str, **params: Any) -> dict[str, Any]:
    return {
        "name": "find",
        "uses": "data.sql",
        "inputs": {"rows": "inputs.rows"},
        "with": {"query": query, **params},
    }


def coded(**params: Any) -> dict[str, Any]:
    code = "def main(rows):\n  return rows, {'mean_words': 2.5}"
    return {
        "name": "count",
        "uses": "code.python",
        "inputs": {"rows": "inputs.rows"},
        "with": {"code": code, **params},
    }


def passed(k: list[int]) -> dict[str, Any]:
    checks = [{"name": "number-equals", "target": "target"}]
    return {
        "name": "pass",
        "uses": "eval.pass-at-k",
        "inputs": {"rows": "inputs.rows"},
        "with": {"problem": ["said"], "judge": checks, "completion": "said", "k": k},
    }


def trained(which: str, **params: Any) -> dict[str, Any]:
    own: dict[str, dict[str, Any]] = {
        "sft": {"text": "{{ said }}"},
        "ppo": {"prompt": "{{ said }}"},
        "grpo": {"prompt": "{{ said }}"},
    }
    pair = {"prompt": "{{ said }}", "chosen": "{{ said }}", "rejected": "{{ target }}"}
    inputs = {"model": "inputs.base", "rows": "inputs.rows"}
    return {
        "name": "tune",
        "uses": f"train.{which}",
        "inputs": {**inputs, "reward": "inputs.base"} if which == "ppo" else inputs,
        "with": {**own.get(which, pair), **params},
    }


@pytest.mark.parametrize(
    ("step", "condition", "problem"),
    [
        (SCORE, "steps['score'].metrics.accuracy > 0.5", ""),
        (
            SCORE,
            "steps['score'].metrics.acuracy > 0.5",
            "no metric 'acuracy' of eval.exact-match; did you mean 'accuracy'?",
        ),
        (judged(), "steps['judge'].metrics.mean > 0.5", ""),
        (judged(labels=["good"]), "steps['judge'].metrics['share.good'] > 0.5", ""),
        (judged(labels=["good"]), "steps['judge'].counts['label.good'] > 1", ""),
        (judged(), "steps['judge'].counts.unparsed > 1", ""),
        (
            judged(labels=["good"]),
            "steps['judge'].metrics['share.god'] > 0.5",
            "no metric 'share.god' of llm.score; did you mean 'share.good'?",
        ),
        (
            judged(labels=["good"]),
            "steps['judge'].metrics.mean > 0.5",
            "no metric 'mean' of llm.score; there is count, share.good",
        ),
        (passed([1, 4]), "steps['pass'].metrics.pass_at_4_low > 0.5", ""),
        (
            passed([1]),
            "steps['pass'].metrics.pass_at_4 > 0.5",
            "no metric 'pass_at_4' of eval.pass-at-k; did you mean 'pass_at_1'?",
        ),
        (coded(), "steps['count'].metrics.anything > 1", ""),
        (coded(metrics={"mean_words": "number"}), "steps['count'].metrics.mean_words > 1", ""),
        (
            coded(metrics={"mean_words": "number"}),
            "steps['count'].metrics.mean_word > 1",
            "no metric 'mean_word' of code.python; did you mean 'mean_words'?",
        ),
        (
            asked("select avg(n) as mean from rows", metrics=True),
            "steps['find'].metrics.mean > 1",
            "",
        ),
        (
            asked("select avg(n) as mean from rows", metrics=True),
            "steps['find'].metrics.maen > 1",
            "no metric 'maen' of data.sql; did you mean 'mean'?",
        ),
        (
            asked("select avg(n) as mean from rows"),
            "steps['find'].metrics.mean > 1",
            "'find' has no output 'metrics' with metrics: false; it has 'rows'; set metrics: true",
        ),
    ],
)
def test_a_metric_that_no_engine_reports_is_refused(
    problems: Problems, step: dict[str, Any], condition: str, problem: str
) -> None:
    found = problems(step, {"when": condition}, inputs=INPUTS)
    assert found == ({WHEN: problem} if problem else {})


@pytest.mark.parametrize(
    "condition",
    [
        "steps['find'].rows[0].n > 1",
        "steps['find'].rows.exists(r, r.n > 1)",
        "size(steps['find'].rows) > 1",
        "steps['find'].rows.size() > 1",
        "steps['find'].rows.filter(r, r.n > 1) != []",
    ],
)
def test_a_condition_that_looks_into_rows_is_refused(problems: Problems, condition: str) -> None:
    assert problems(asked("select n from rows"), {"when": condition}, inputs=INPUTS) == {
        WHEN: "a condition cannot read a row; compute a metric, e.g. data.sql with metrics: true,"
        " or compare the count"
    }


def test_the_count_of_rows_and_a_skip_may_still_be_read(problems: Problems) -> None:
    for condition in ("steps['find'].rows.count > 0", "steps['find'] == null"):
        assert not problems(asked("select n from rows"), {"when": condition}, inputs=INPUTS)


@pytest.mark.parametrize("which", ["sft", "reward", "dpo", "ppo", "grpo"])
def test_a_misspelt_metric_of_a_training_is_refused_with_the_nearest_one(
    problems: Problems, which: str
) -> None:
    said = f"no metric 'train_los' of train.{which}; did you mean 'train_loss'?"
    found = problems(trained(which), {"when": "steps['tune'].metrics.train_los < 1"}, inputs=INPUTS)
    assert found == {WHEN: said}


CHECKS = [
    {"name": "number-equals", "target": "target"},
    {"name": "matches", "pattern": "a"},
    {"name": "matches", "pattern": "b"},
]


@pytest.mark.parametrize(
    ("step", "metric", "near"),
    [
        (trained("sft"), "mean_token_accuracy", ""),
        (trained("sft", test_size=0.5), "eval_loss", ""),
        (trained("sft", test_size=0.5), "eval_entropy", ""),
        (trained("dpo"), "rewards_margins", ""),
        (trained("dpo"), "rewards_margin", "rewards_margins"),
        (trained("reward"), "accuracy", ""),
        (trained("ppo"), "objective_rlhf_reward", ""),
        (trained("ppo"), "objective_rlhf_rewards", "objective_rlhf_reward"),
        (trained("grpo", reward_funcs=CHECKS), "rewards_number_equals_mean", ""),
        (trained("grpo", reward_funcs=CHECKS), "rewards_matches_2_std", ""),
        (
            trained("grpo", reward_funcs=CHECKS),
            "rewards_number_equal_mean",
            "rewards_number_equals_mean",
        ),
        (trained("grpo", reward_funcs=CHECKS, beta=0.1), "kl", ""),
    ],
)
def test_a_training_has_the_metrics_that_its_parameters_decide(
    problems: Problems, step: dict[str, Any], metric: str, near: str
) -> None:
    found = problems(step, {"when": f"steps['tune'].metrics.{metric} < 1"}, inputs=INPUTS)
    said = f"no metric '{metric}' of {step['uses']}; did you mean '{near}'?"
    assert found == ({WHEN: said} if near else {})


def test_a_metric_that_a_parameter_would_bring_is_refused_with_that_parameter(
    problems: Problems,
) -> None:
    found = problems(trained("sft"), {"when": "steps['tune'].metrics.eval_loss < 1"}, inputs=INPUTS)
    assert found == {WHEN: "no metric 'eval_loss' of train.sft without test_size"}


def test_declared_metrics_have_known_types(problems: Problems) -> None:
    path = "spec.steps[0].with.metrics"
    assert problems(coded(metrics={"words": "float"}), inputs=INPUTS) == {
        path: "in words: expected one of number, integer, boolean, string, got the string 'float'"
    }
    assert problems(coded(metrics={}), inputs=INPUTS) == {
        path: "expected at least one metric with its type, as {mean_words: number}"
    }


def test_a_step_that_sets_nothing_new_needs_no_newer_worker(compiled: Compile) -> None:
    plan = compiled(coded(), asked("select n from rows"), inputs=INPUTS)
    assert [s.minor for s in plan.steps] == [0, 0]
    plan = compiled(
        coded(metrics={"a": "number"}), asked("select n from rows", metrics=True), inputs=INPUTS
    )
    assert [s.minor for s in plan.steps] == [1, 1]
