"""Ctrl-C once and twice at every stage of a command: real processes and real signals."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import environment, fmesh, owner, started, until

from flowmesh_cli.connection.owner import join
from flowmesh_cli.connection.state_dir import state_dir
from flowmesh_cli.exit_codes import ExitCode

pytestmark = pytest.mark.slow

WAITS = "import threading; threading.Event().wait()"
COMMAND = f"""
import subprocess, sys, threading, typer
from flowmesh_cli import main
from flowmesh_cli.errors import guarded
from flowmesh_cli.interrupts import Interrupts, leave

def say(text):
    print(text, flush=True)

def waits():
    threading.Event().wait()

@guarded
def cleans(json: bool = False):
    child = subprocess.Popen([sys.executable, "-c", "{WAITS}"])
    try:
        say(f"child {{child.pid}}")
        waits()
    finally:
        say("cleaning")
        waits()

@guarded
def follows():
    with Interrupts(at_once=lambda: leave(130, "left by the command")) as interrupts:
        say("following")
        while not interrupts.asked:
            interrupts.wait(60)
    say("closing")
    waits()

def parses():
    say("parsing")
    waits()

@guarded
def ends():
    say("ending")
    waits()

chosen = {{f.__name__: f for f in (cleans, follows, parses, ends)}}
main.app = typer.Typer(pretty_exceptions_enable=False)
main.app.command()(chosen[sys.argv.pop()])
main.main()
"""


class Child:
    """A command of this file in a process of its own, which does not ignore SIGINT."""

    def __init__(self, name: str) -> None:
        self.process = subprocess.Popen(
            ["env", "--default-signal=INT", sys.executable, "-c", COMMAND, name],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(),
        )

    def until(self, text: str) -> str:
        """Waits for a line with this prefix; returns the rest."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(text), line + self.process.stdout.read()
        return line.removeprefix(text).strip()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str]:
        """Returns the exit code and the last output."""
        said, _ = self.process.communicate(timeout=300)
        return self.process.returncode, said


def test_a_second_ctrl_c_while_the_command_cleans_up_ends_it_and_its_children() -> None:
    child = Child("cleans")
    pid = int(child.until("child "))
    child.interrupt()
    child.until("cleaning")
    child.interrupt()
    assert child.end() == (ExitCode.INTERRUPTED, "exited at once\n")
    until(lambda: not psutil.pid_exists(pid))


def test_a_second_ctrl_c_after_following_runs_calls_the_commands_handler() -> None:
    child = Child("follows")
    child.until("following")
    child.interrupt()
    child.until("closing")
    child.interrupt()
    assert child.end() == (ExitCode.INTERRUPTED, "left by the command\n")


@pytest.mark.parametrize("name", ["parses", "ends"])
def test_one_ctrl_c_ends_a_command_silently(name: str) -> None:
    """Also if it comes before the command's error handling has started."""
    child = Child(name)
    child.until({"parses": "parsing", "ends": "ending"}[name])
    child.interrupt()
    code, said = child.end()
    assert (code, said.strip()) == (ExitCode.INTERRUPTED, "")


def test_a_process_started_to_ignore_ctrl_c_continues(tmp_path: Path) -> None:
    ignores = ["env", "--ignore-signal=INT", sys.executable, "-c", COMMAND, "ends"]
    with subprocess.Popen(ignores, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.terminate()
        assert process.wait(300) == -signal.SIGTERM


def test_a_second_ctrl_c_while_workers_are_ended_ends_them_at_once(tmp_path: Path) -> None:
    flow = flows.write(tmp_path, "nap", flows.sleeping(0.01))
    state = state_dir(tmp_path / ".flowmesh")
    state.prepare()
    joined = join(state)
    assert joined is not None
    with joined, started("run", flow, cwd=tmp_path) as run:
        run.until("serving until the runs that joined have ended")
        workers = list(owner(tmp_path)["workers"].values())
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)  # so that asking them to end has no effect
        run.process.send_signal(signal.SIGINT)
        until(lambda: all(waits_for_sigterm(pid) for pid in workers))
        run.process.send_signal(signal.SIGINT)
        assert run.end() == ExitCode.INTERRUPTED
        assert "Traceback" not in run.said
        assert run.said.rstrip().endswith("exited at once; run the same command to resume")
    assert workers
    until(lambda: not any(psutil.pid_exists(pid) for pid in workers))
    assert fmesh("status", cwd=tmp_path).returncode == 0


def waits_for_sigterm(pid: int) -> bool:
    """Returns whether a stopped process has a pending SIGTERM, or has been ended since."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return True
    pending = next(line for line in lines if line.startswith("ShdPnd:"))
    return bool(int(pending.split()[1], 16) & 1 << (signal.SIGTERM - 1))
