"""Runs ``fmesh`` as a user does: as a process, in a folder, optionally on a terminal."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "flowmesh_cli"]
WITHIN_S = 400.0  # for a machine that has much else to do


def fmesh(
    *arguments: str | Path, cwd: Path, timeout_s: float = WITHIN_S
) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=environment(),
        check=False,
    )


def answer(*arguments: str | Path, cwd: Path, timeout_s: float = WITHIN_S) -> Any:
    """Runs the command with ``--json``; returns the document."""
    done = fmesh(*arguments, "--json", cwd=cwd, timeout_s=timeout_s)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextlib.contextmanager
def started(*arguments: str | Path, cwd: Path) -> Iterator["Started"]:
    """Runs the command beside the test; ends it and its children at the end."""
    with (cwd / f"said-{time.monotonic_ns()}").open("w+") as said:
        process = subprocess.Popen(
            ["env", "--default-signal=INT", *COMMAND, *map(str, arguments)],
            cwd=cwd,
            stdout=said,
            stderr=said,
            env=environment(),
            start_new_session=True,
        )
        found = Started(process, Path(said.name), cwd)
        try:
            yield found
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


class Started:
    """A running ``fmesh``."""

    def __init__(self, process: subprocess.Popen[bytes], said: Path, cwd: Path) -> None:
        self.process = process
        self._said = said
        self._cwd = cwd

    @property
    def said(self) -> str:
        """Everything that it has written so far."""
        return self._said.read_text()

    def until(self, text: str) -> None:
        """Waits until it has written a text."""
        until(lambda: text in self.said or self.process.poll() is not None)
        assert text in self.said, self.said

    def end(self, timeout_s: float = WITHIN_S) -> int:
        """Waits for its end; returns the exit code."""
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """Ends it as ``kill -9`` does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def owner(cwd: Path) -> dict[str, Any]:
    """Returns the content of the owner file."""
    try:
        return json.loads((cwd / ".flowmesh" / "owner").read_text())
    except (OSError, ValueError):
        return {}


def end_workers(cwd: Path) -> None:
    """Ends the workers that a killed owner left, by the ids in its file."""
    for pid in owner(cwd).get("workers", {}).values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def until(holds: Callable[[], bool], within_s: float = WITHIN_S) -> None:
    """Waits for a condition."""
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


def children_s() -> float:
    """Returns the CPU time of all ended children, which does not depend on the machine's load."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def environment() -> dict[str, str]:
    """Returns an environment without colours and without this session's state folder."""
    kept = {k: v for k, v in os.environ.items() if k not in ("FLOWMESH_STATE_DIR", "FMESH_DEBUG")}
    return {**kept, "TERM": "dumb"}
