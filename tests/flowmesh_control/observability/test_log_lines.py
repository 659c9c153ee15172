"""Log lines of runs, as text and as JSON with their fields."""

import io
import json
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flowmesh_control.observability.log_format import LogFormatError, formatter
from flowmesh_control.observability.run_log import RunLogListener
from flowmesh_core.accounting.ledger_lines import StepLine, VerdictLine
from flowmesh_core.machine.commands import AttemptSettled
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import Usage
from flowmesh_core.units import Digest

PLAN = SimpleNamespace(name="nightly", namespace="team-a")
STATE = cast(State, SimpleNamespace(runs={"u1": SimpleNamespace(plan=PLAN)}))
FAILED = AttemptSettled(
    attempt_id="s/a/1-1",
    action_id=Digest("a"),
    engine="data.sql",
    worker="w1",
    pool="cpu",
    outcome="engine",
    message="it broke",
    assigned_s=1.0,
    ended_s=2.0,
    usage=Usage(),
    subscribers=(("u1", "clean"), ("u1", "clean")),
)


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter({"FLOWMESH_LOG_FORMAT": "json"}))
    log = logging.getLogger("flowmesh.runs")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield stream
    log.setLevel(logging.NOTSET)
    log.removeHandler(handler)


def objects(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_failed_attempt_is_logged_as_one_object_with_all_details(written: io.StringIO) -> None:
    RunLogListener(STATE).settled(FAILED)
    [line] = objects(written)
    assert line.pop("time")
    assert line == {
        "level": "WARNING",
        "logger": "flowmesh.runs",
        "message": "step clean of run u1: attempt engine on w1: it broke",
        "workflow": "team-a/nightly",
        "run": "u1",
        "step": "clean",
        "action": "a",
        "attempt": "s/a/1-1",
        "worker": "w1",
    }


def test_successful_steps_are_not_logged_one_by_one(written: io.StringIO) -> None:
    log = RunLogListener(STATE)
    log.appended("u1", StepLine(1.0, "clean", "COMPLETED"))
    log.appended("u1", StepLine(1.0, "tune", "FAILED", "engine", "out of ideas"))
    log.appended("u1", VerdictLine(2.0, "Failed", "engine", "out of ideas", "tune"))
    log.appended("u2", VerdictLine(2.0, "Succeeded"))
    assert [(o["level"], o["run"], o.get("step")) for o in objects(written)] == [
        ("WARNING", "u1", "tune"),
        ("WARNING", "u1", "tune"),
        ("INFO", "u2", None),
    ]


def test_an_unknown_log_format_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(LogFormatError, match="text or json"):
        formatter({"FLOWMESH_LOG_FORMAT": "xml"})
    assert "nightly" in formatter({}).format(logging.makeLogRecord({"msg": "nightly"}))
