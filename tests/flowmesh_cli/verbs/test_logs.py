"""``fmesh logs``: each line of an engine once, however many attempts it belongs to."""

import json

import pytest

from flowmesh_api.v1.runs import StepLogLine
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.logs import LogPrinter


def shown(capsys: pytest.CaptureFixture[str], *lines: StepLogLine) -> list[str]:
    """Returns the text of the lines, without times."""
    LogPrinter(Terminal(as_json=False), names_steps=False).show(list(lines))
    return [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]


def line(attempt: str, time_s: float, text: str, step: str = "sample") -> StepLogLine:
    return StepLogLine(attempt, time_s, text, step)


def test_a_line_of_an_engine_that_two_attempts_share_is_written_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    both = [line("a", 100.0, "loading"), line("b", 100.000004, "loading")]
    assert shown(capsys, *both, line("a", 101.0, "ready")) == ["loading", "ready"]


def test_a_line_that_one_attempt_printed_twice_is_written_twice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    once_more = [line("a", 100.0, "tick"), line("a", 100.000002, "tick")]
    assert shown(capsys, *once_more) == ["tick", "tick"]
    copies = [line("b", 100.000001, "tick"), line("b", 100.000003, "tick")]
    assert shown(capsys, *sorted([*once_more, *copies], key=lambda x: x.time_s)) == ["tick", "tick"]


def test_equal_lines_of_another_time_or_step_are_written_separately(
    capsys: pytest.CaptureFixture[str],
) -> None:
    later = [line("a", 100.0, "epoch"), line("b", 103.0, "epoch")]
    assert shown(capsys, *later) == ["epoch", "epoch"]
    other = [line("a", 100.0, "epoch"), line("b", 100.0, "epoch", step="tune")]
    assert shown(capsys, *other) == ["epoch", "epoch"]


def test_a_copy_of_a_line_in_the_next_response_is_not_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = LogPrinter(Terminal(as_json=False), names_steps=False)
    printer.show([line("a", 100.0, "loading")])
    printer.show([line("a", 100.0, "loading"), line("b", 100.000004, "loading")])
    assert capsys.readouterr().out.count("loading") == 1


@pytest.mark.parametrize(
    "text",
    ["(EngineCore pid=4711)", "(EngineCore pid=4711) ", "\x1b[0;36m(Worker pid=1)\x1b[0;0m "],
)
def test_a_process_prefix_without_text_is_not_written(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    said = "(EngineCore pid=4711) INFO loaded"
    assert shown(capsys, line("a", 100.0, text), line("a", 100.1, said)) == [said]


def test_json_has_every_line_of_every_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    both = [line("a", 100.0, "loading"), line("b", 100.000004, "loading")]
    LogPrinter(Terminal(as_json=True), names_steps=True).show(both)
    found = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert [entry["attempt_id"] for entry in found] == ["a", "b"]
