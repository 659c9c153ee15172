"""Owners, joiners, Ctrl-C and kill -9: which processes survive and which end."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import (
    answer,
    end_workers,
    fmesh,
    owner,
    started,
    until,
)
from tests.flowmesh_cli.terminals import on_a_terminal

from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.interrupts import SHOW_CURSOR

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_workers(tmp_path)


def test_a_second_run_joins_the_first_which_serves_until_both_have_ended(folder: Path):
    short = flows.write(folder, "short", flows.sleeping(600, "a"))
    long = flows.write(folder, "long", flows.sleeping(600, "b"))
    with started("run", short, cwd=folder) as first:
        first.until("rest running")
        with started("run", long, "--workers", "4", cwd=folder) as second:
            second.until("--workers 4: ignored")
            second.until("rest running")
            answer("cancel", "short", cwd=folder)
            first.until("serving until the runs that joined have ended")
            assert second.process.poll() is None
            answer("cancel", "long", cwd=folder)
            assert second.end() == ExitCode.CANCELLED
            assert first.end() == ExitCode.CANCELLED
    assert len(list((folder / ".flowmesh" / "epochs").iterdir())) == 1
    assert owner(folder) == {}


def test_after_kill_9_of_the_owner_the_same_command_resumes_on_the_same_workers(folder: Path):
    flow = flows.write(folder, "nap", flows.sleeping(6))
    with started("run", flow, cwd=folder) as first:
        first.until("rest running")
        workers = owner(folder)["workers"]
        first.kill()
    with started("run", flow, "--json", cwd=folder) as second:
        second.until("resumes as nap-")
        assert owner(folder)["workers"] == workers
        assert second.end() == ExitCode.OK
        said, _ = json.JSONDecoder().raw_decode(second.said[second.said.index("{\n") :])
    run = answer("status", cwd=folder)
    assert run["phase"] == "Succeeded"
    assert run["executed"] == 2
    receipt, (shown,) = answer("receipt", cwd=folder), said["runs"]
    for figure in ("executed", "paid_nanousd"):
        assert shown[figure] == run[figure] == receipt[figure] > 0, figure
    assert shown == run
    assert len(answer("status", "--all", cwd=folder)["runs"]) == 1


def test_a_joined_run_takes_the_fabric_over_when_its_owner_is_killed(folder: Path):
    nap = flows.write(folder, "nap", flows.sleeping(60, "a"))
    other = flows.write(folder, "other", flows.sleeping(5, "b"))
    with started("run", nap, cwd=folder) as first:
        first.until("rest running")
        with started("run", other, cwd=folder) as second:
            second.until("rest running")
            first.kill()
            assert second.end() == ExitCode.OK, second.said
            assert "the fabric does not answer; reconnecting" in second.said


def test_a_killed_worker_is_started_again_and_the_run_succeeds(folder: Path):
    flow = flows.write(folder, "nap", flows.sleeping(4))
    with started("run", flow, cwd=folder) as run:
        run.until("rest running")
        os.kill(owner(folder)["workers"]["local-1"], signal.SIGKILL)
        run.until("is restarted")
        assert run.end() == ExitCode.OK, run.said


def test_ctrl_c_cancels_cleanly_and_ends_the_workers(folder: Path):
    flow = flows.write(folder, "nap", flows.sleeping(600))
    with on_a_terminal("run", flow, cwd=folder) as terminal:
        until(lambda: terminal.said is not None and "rest" in states(folder))
        workers = owner(folder)["workers"].values()
        terminal.type(b"\x03")
        assert terminal.end() == ExitCode.INTERRUPTED
    assert answer("status", cwd=folder)["phase"] == "Cancelled"
    assert not any(psutil.pid_exists(pid) for pid in workers)


def test_ctrl_c_on_a_run_that_another_command_submitted_too_leaves_it_running(folder: Path):
    flow = flows.write(folder, "nap", flows.sleeping(600))
    with started("run", flow, cwd=folder) as first:
        first.until("rest running")
        with started("run", flow, cwd=folder) as second:
            second.until("resumes as nap-")
            second.process.send_signal(signal.SIGINT)
            second.until("goes on for others who submitted it")
            assert second.end() == ExitCode.INTERRUPTED
        assert answer("status", cwd=folder)["phase"] == "Running"
        first.process.send_signal(signal.SIGINT)
        assert first.end() == ExitCode.INTERRUPTED
    assert answer("status", cwd=folder)["phase"] == "Cancelled"


def test_ctrl_c_twice_leaves_at_once_and_the_run_can_be_resumed(folder: Path):
    flow = flows.write(folder, "nap", flows.sleeping(600))
    with on_a_terminal("run", flow, cwd=folder) as terminal:
        until(lambda: terminal.said is not None and "rest" in states(folder))
        stopped = stop_workers(folder)  # so that cancelling takes its time
        terminal.type(b"\x03")
        terminal.until("Ctrl-C again to exit at once")
        terminal.type(b"\x03")
        assert terminal.end(within_s=400) == ExitCode.INTERRUPTED
        drawn, left, _ = terminal.said.rpartition("exited at once; run the same command")
        assert left
        assert drawn.rstrip().endswith(SHOW_CURSOR)
    until(lambda: not any(psutil.pid_exists(pid) for pid in stopped))


def test_ctrl_c_twice_ends_the_workers_of_up_too(folder: Path):
    with on_a_terminal("up", cwd=folder) as terminal:
        terminal.until("Ctrl-C stops")
        until(lambda: answer("workers", cwd=folder))
        stopped = stop_workers(folder)
        terminal.type(b"\x03")
        terminal.until("stopping")
        assert "unfinished runs" not in terminal.said  # there are none
        terminal.type(b"\x03")
        assert terminal.end(within_s=400) == ExitCode.OK
        assert "exited at once" in terminal.said, terminal.said
    until(lambda: not any(psutil.pid_exists(pid) for pid in stopped))


def stop_workers(folder: Path) -> list[int]:
    """Stops the workers with SIGSTOP, so that SIGTERM has no effect."""
    workers = list(owner(folder)["workers"].values())
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    assert workers
    return workers


def test_up_serves_submitted_workflows_until_it_is_stopped(folder: Path):
    flow = flows.write(folder, "nap", flows.sleeping(0.5))
    long = flows.write(folder, "long", flows.sleeping(600))
    with started("up", cwd=folder) as up:
        up.until("Ctrl-C stops")
        (accepted,) = answer("submit", flow, cwd=folder)
        assert fmesh("watch", accepted["uid"], cwd=folder).returncode == ExitCode.OK
        assert [w["shape"]["name"] for w in answer("workers", cwd=folder)] == ["local-1"]
        (other,) = answer("submit", long, cwd=folder)
        until(lambda: "local-1" in states(folder))
        explained = answer("explain", "rest", "--run", "long", cwd=folder)
        (action,) = explained["actions"]
        assert [c["worker"] for c in action["candidates"]] == action["workers"] == ["local-1"]
        assert "its engine runs" in fmesh("explain", "rest", "--run", "long", cwd=folder).stdout
        assert answer("cancel", other["uid"], cwd=folder)["phase"] == "Cancelled"
        assert fmesh("watch", other["uid"], cwd=folder).returncode == ExitCode.CANCELLED
        again = fmesh("up", cwd=folder)
        assert again.returncode == ExitCode.USAGE
        assert "already serves this folder" in again.stderr
        up.process.send_signal(signal.SIGTERM)
        assert up.end() == ExitCode.OK


def states(folder: Path) -> str:
    """Returns the paths of running steps from the API."""
    if not owner(folder).get("url"):
        return ""
    done = fmesh("status", "--json", cwd=folder)
    return done.stdout if '"RUNNING"' in done.stdout and '"local-1"' in done.stdout else ""
