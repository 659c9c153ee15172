"""The columns of a receipt."""

import pytest

from flowmesh_api.v1.receipts import Receipt
from flowmesh_api.v1.why import AttemptLine
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.receipts import show_lines
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


def shown(capsys: pytest.CaptureFixture[str], found: Receipt) -> list[str]:
    show_lines(Terminal(as_json=False), found, {})
    return capsys.readouterr().out.splitlines()


def test_cancelled_attempts_do_not_count_as_failed(capsys: pytest.CaptureFixture[str]) -> None:
    _, headings, sample, score, *_ = shown(capsys, receipt("u", "n", "team-a", LINES))
    assert headings.split()[:4] == ["step", "ran", "failed", "cancelled"]
    assert sample.split()[:4] == ["sample", "1", "1", "2"]
    assert score.split()[:4] == ["score", "1", "0", "0"]


def test_a_receipt_counts_cancelled_attempts_among_those_without_a_result() -> None:
    sample, score = receipt("u", "n", "team-a", LINES).lines
    assert (sample.failed_attempts, sample.cancelled_attempts) == (3, 2)
    assert (score.failed_attempts, score.cancelled_attempts) == (0, 0)


def test_a_receipt_explains_its_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, receipt("u", "n", "team-a", LINES))
    assert "engine s" in lines[1]
    assert " 2.8 " in lines[2]
    assert lines[-1].startswith("engine s: seconds that attempts ran in engines, without loading")
