"""The marker says what a process was working on, whatever ended it."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from flowmesh_control.loop import current_event, evaluations
from flowmesh_control.loop.current_event import (
    FILE,
    MARKER_BYTES,
    CurrentEvent,
    CurrentEventMarker,
    clear_marker,
    read_marker,
)
from flowmesh_core.machine.commands import EvaluateCondition
from flowmesh_core.machine.events import (
    CancelRequested,
    Event,
    RunFinalized,
    TimeAdvanced,
    WorkerLost,
)


def marker(folder: Path) -> CurrentEventMarker:
    return CurrentEventMarker.in_folder(folder, epoch=7)


def test_the_marker_names_the_run_of_an_event(tmp_path: Path) -> None:
    marker(tmp_path).begin(CancelRequested("weekly-1"))
    assert read_marker(tmp_path) == CurrentEvent(7, 1, "CancelRequested", run="weekly-1")


def test_the_marker_names_the_worker_of_a_message_and_then_the_run_that_it_changes(
    tmp_path: Path,
) -> None:
    made = marker(tmp_path)
    made.begin(WorkerLost("w1"))
    assert read_marker(tmp_path) == CurrentEvent(7, 1, "WorkerLost", worker="w1")
    made.settle("weekly-1")
    assert read_marker(tmp_path) == CurrentEvent(7, 1, "WorkerLost", run="weekly-1")


def test_a_global_event_names_neither_run_nor_worker(tmp_path: Path) -> None:
    made = marker(tmp_path)
    made.begin(RunFinalized("a-much-longer-name-of-a-run"))
    made.begin(TimeAdvanced())
    assert read_marker(tmp_path) == CurrentEvent(7, 2, "TimeAdvanced")
    made.begin(RunFinalized("weekly-1"))
    made.begin_decision()
    assert read_marker(tmp_path) == CurrentEvent(7, 4, "decision")
    made.begin(RunFinalized("b"))
    assert read_marker(tmp_path) == CurrentEvent(7, 5, "RunFinalized", run="b")


def test_a_condition_that_is_evaluated_at_once_names_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, seen = marker(tmp_path), list[CurrentEvent | None]()
    monkeypatch.setattr(evaluations, "verdict_of", lambda _: seen.append(made.current()))
    made.begin(WorkerLost("w1"))
    made.settle("weekly-1")
    command = EvaluateCondition("weekly-2", 1, None)  # type: ignore[arg-type]
    evaluations.InlineEvaluations(lambda _: None, made.settle).submit(command)
    assert [found and found.run for found in seen] == ["weekly-2"]


def test_the_marker_names_no_event_between_events(tmp_path: Path) -> None:
    made = marker(tmp_path)
    assert read_marker(tmp_path) is None
    made.begin(CancelRequested("weekly-1"))
    made.end()
    assert read_marker(tmp_path) is None
    assert made.current() is None


def test_a_new_epoch_begins_idle(tmp_path: Path) -> None:
    marker(tmp_path).begin(CancelRequested("weekly-1"))
    marker(tmp_path)
    assert read_marker(tmp_path) is None


def test_the_marker_supports_every_event() -> None:
    assert {*current_event._HEADS, *current_event._HEADS_WITHOUT_SUBJECT} == set(get_args(Event))


def test_a_name_that_is_too_long_is_cut_and_the_file_keeps_its_size(tmp_path: Path) -> None:
    made = marker(tmp_path)
    made.begin(WorkerLost("w" * 1000))
    made.settle("r" * 1000)
    assert (tmp_path / FILE).stat().st_size == MARKER_BYTES
    found = read_marker(tmp_path)
    assert found is not None
    assert set(found.run) == {"r"}


def test_in_an_unwritable_folder_only_the_marker_file_is_missing(tmp_path: Path) -> None:
    made = marker(tmp_path / "nothing" / "there")
    made.begin(CancelRequested("weekly-1"))
    current = made.current()
    assert current is not None
    assert current.run == "weekly-1"


@pytest.mark.parametrize("content", [b"", b"x" * 10, b"\xff" * MARKER_BYTES, b"a" * 1000])
def test_an_invalid_marker_file_names_no_event(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert read_marker(tmp_path) is None


def test_the_marker_survives_a_kill_of_the_process_and_is_removed_when_cleared(
    tmp_path: Path,
) -> None:
    program = (
        "import os, signal, sys, pathlib\n"
        "from flowmesh_control.loop.current_event import CurrentEventMarker\n"
        "from flowmesh_core.machine.events import CancelRequested\n"
        "made = CurrentEventMarker.in_folder(pathlib.Path(sys.argv[1]), epoch=7)\n"
        "made.begin(CancelRequested('weekly-1'))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], env=os.environ, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert read_marker(tmp_path) == CurrentEvent(7, 1, "CancelRequested", run="weekly-1")
    clear_marker(tmp_path)
    assert read_marker(tmp_path) is None
