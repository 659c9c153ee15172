"""In what two runs differ."""

from typing import Any

from flowmesh_api.v1.runs import RunStatus, StepStatus
from flowmesh_cli.verbs.diff import Difference, differences

ROWS = {"kind": "dataset", "rows": 4, "digest": "a" * 64}


def run(*steps: StepStatus, **outputs: dict[str, Any]) -> RunStatus:
    return RunStatus("u", "a", "team-a", "Succeeded", 1.0, 2.0, steps=steps, outputs=outputs)


def metrics(**values: float) -> dict[str, Any]:
    return {"kind": "metrics", "value": values, "digest": str(values)}


def test_equal_runs_do_not_differ_whatever_they_paid_and_reused() -> None:
    one = run(StepStatus("vote", "data.sql", "COMPLETED", executed=1), answers=ROWS)
    other = run(StepStatus("vote", "data.sql", "COMPLETED", hits=1), answers=dict(ROWS))
    assert differences(one, other) == []


def test_steps_outputs_and_metrics_that_differ_are_named_with_both_values() -> None:
    one = run(
        StepStatus("vote", "data.sql", "COMPLETED"), StepStatus("score", "eval.win-rate", "FAILED"),
        answers=ROWS, quality=metrics(accuracy=0.5, count=4),
    )  # fmt: skip
    other = run(
        StepStatus("vote", "data.sql", "COMPLETED"), StepStatus("judge", "llm.score", "SKIPPED"),
        answers={**ROWS, "digest": "b" * 64}, quality=metrics(accuracy=0.75, count=4),
    )  # fmt: skip
    assert differences(one, other) == [
        Difference("step score", "eval.win-rate failed", "-"),
        Difference("step judge", "-", "llm.score skipped"),
        Difference(
            "output answers", "dataset, 4 rows, aaaaaaaaaaaa", "dataset, 4 rows, bbbbbbbbbbbb"
        ),
        Difference("quality.accuracy", "0.5", "0.75"),
    ]
