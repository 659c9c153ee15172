"""The buffer of log lines, by action."""

from flowmesh_control.workers.log_buffer import LogBuffer
from flowmesh_core.protocol.messages import AttemptEnd, LogLine, Sync
from flowmesh_core.units import Digest


def test_logs_are_stored_by_action_and_removed_with_the_oldest_attempt() -> None:
    logs = LogBuffer(attempts=2, lines=2)
    for n in range(3):
        lines = tuple(LogLine("s/a/1-1", float(i), f"line {i}") for i in range(3))
        logs.add(Sync(1, logs=lines))
        logs.add(Sync(1, ended=(AttemptEnd(f"s/b/1-{n}", Digest("b"), log="one\ntwo", ended_s=9),)))
    assert [x.text for x in logs.of_actions(["s/b"])] == ["one", "two"]
    assert [x.text for x in logs.of_actions(["s/a"])] == ["line 1", "line 2"]
    logs.add(Sync(1, logs=(LogLine("s/a/1-1", 1.0, "x"), LogLine("s/a/1-1", 2.0, "y"))))
    logs.add(Sync(1, logs=(LogLine("s/a/1-1", 3.0, "z"),)))
    assert [x.text for x in logs.of_actions(["s/a"])] == ["y", "z"]
