"""The worker's log lines as JSON."""

import json
import logging

import pytest

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.protocol.messages import Assignment
from flowmesh_core.units import Digest
from flowmesh_worker.log_format import attempt_fields, formatter

ASSIGNMENT = Assignment(
    "s/a/1-1", Digest("a"), Digest("b"), "data.sql", 1, 1, {}, {}, {}, run_uids=("u1", "u2")
)


def test_a_line_about_an_attempt_names_it_its_action_and_its_runs() -> None:
    record = logging.makeLogRecord(
        {
            "msg": "%s failed",
            "args": ("data.sql",),
            "levelname": "WARNING",
            "name": "w",
            **attempt_fields(ASSIGNMENT),
        }
    )
    line = json.loads(formatter({"FLOWMESH_LOG_FORMAT": "json"}, "w1").format(record))
    assert line.pop("time")
    assert line == {
        "level": "WARNING",
        "logger": "w",
        "message": "data.sql failed",
        "worker": "w1",
        "attempt": "s/a/1-1",
        "action": "a",
        "engine": "data.sql",
        "runs": ["u1", "u2"],
    }


def test_the_text_format_is_readable_and_unknown_formats_are_refused() -> None:
    record = logging.makeLogRecord({"msg": "hello", "levelname": "INFO"})
    assert formatter({}, "w1").format(record) == "w1 INFO hello"
    with pytest.raises(FlowMeshError, match="text or json"):
        formatter({"FLOWMESH_LOG_FORMAT": "xml"}, "w1")
