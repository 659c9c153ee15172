"""Metrics of several runs in one table."""

import pytest

from flowmesh_api.v1.runs import RunStatus
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views.runs import show_metrics


def run(name: str, **metrics: float) -> RunStatus:
    output = {"kind": "metrics", "value": metrics} if metrics else None
    return RunStatus(f"{name}-1", name, "team-a", "Succeeded", 1.0, outputs={"score": output})


def test_metrics_of_several_runs_stand_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [run("one", accuracy=0.72916, count=48), run("none"), run("two", loss=1.5)]
    show_metrics(Terminal(as_json=False), runs)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["metrics", "of", "output", "accuracy", "count", "loss"],
        ["team-a/one", "score", "0.7292", "48"],
        ["team-a/two", "score", "1.5"],
    ]


def test_the_metrics_of_one_run_are_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    show_metrics(Terminal(as_json=False), [run("one", accuracy=0.5), run("none")])
    assert capsys.readouterr().out == ""
