"""The columns of a receipt."""

from typing import Any

import pytest

from flowmesh_api.v1.receipts import Receipt
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.receipts import cancelled_attempts, show_lines
from flowmesh_core.accounting.ledger_lines import AttemptLine
from flowmesh_core.accounting.receipt import receipt


def attempt(step: str, outcome: str, run_s: float = 0.0) -> AttemptLine:
    return AttemptLine(
        100.0, step, 0, "action", f"{step}-{outcome}", "w", "i", outcome, 0, 0, run_s=run_s
    )


LINES = [
    attempt("sample", "published", 2.25),
    attempt("sample", "cancelled", 0.5),
    attempt("sample", "cancelled"),
    attempt("sample", "out-of-memory"),
    attempt("score", "published", 0.25),
]


class Stories(ApiClient):
    """A client that returns the attempts of a step and records the requested steps."""

    def __init__(self) -> None:
        super().__init__("", None)  # type: ignore[arg-type] - nothing is sent
        self.asked: list[str] = []

    def get(self, path: str, kind: type[Any], **query: Any) -> Any:
        self.asked.append(query["step"])
        return kind(tuple(a for a in LINES if a.step == query["step"]))


def shown(capsys: pytest.CaptureFixture[str], found: Receipt) -> list[str]:
    show_lines(Terminal(as_json=False), found, {}, cancelled_attempts(Stories(), found))
    return capsys.readouterr().out.splitlines()


def test_cancelled_attempts_are_no_failed_ones(capsys: pytest.CaptureFixture[str]) -> None:
    _, headings, sample, score, *_ = shown(capsys, receipt("u", "n", "team-a", LINES))
    assert headings.split()[:4] == ["step", "ran", "failed", "cancelled"]
    assert sample.split()[:4] == ["sample", "1", "1", "2"]
    assert score.split()[:4] == ["score", "1", "0", "0"]


def test_only_steps_with_attempts_without_a_result_are_looked_up() -> None:
    stories = Stories()
    cancelled_attempts(stories, receipt("u", "n", "team-a", LINES))
    assert stories.asked == ["sample"]


def test_a_receipt_says_what_its_seconds_are(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, receipt("u", "n", "team-a", LINES))
    assert "engine s" in lines[1]
    assert " 2.8 " in lines[2]
    assert lines[-1].startswith("engine s: seconds that attempts ran in engines, without loading")
