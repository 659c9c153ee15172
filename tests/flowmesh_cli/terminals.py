"""``fmesh`` on a pseudo-terminal, which turns ^C into SIGINT as a real one does."""

import os
import pty
import subprocess
from pathlib import Path

from tests.flowmesh_cli.calling import COMMAND, WITHIN_S, environment, until

_TERMINAL = ("env", "--default-signal=INT", "setsid", "--ctty")
"""Whoever runs the tests in the background has them ignore SIGINT; a terminal does not."""


class on_a_terminal:  # noqa: N801 - reads as a function
    """Runs the command; reads its output continuously, so that it never blocks."""

    def __init__(self, *arguments: str | Path, cwd: Path) -> None:
        self._arguments, self._cwd = arguments, cwd
        self._said = b""

    def __enter__(self) -> "on_a_terminal":
        self._terminal, inside = pty.openpty()
        self.process = subprocess.Popen(
            [*_TERMINAL, *COMMAND, *map(str, self._arguments)],
            cwd=self._cwd,
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env={**environment(), "TERM": "xterm"},
        )
        os.close(inside)
        os.set_blocking(self._terminal, False)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._terminal)

    @property
    def said(self) -> str:
        """Everything that it has drawn so far."""
        try:
            while drawn := os.read(self._terminal, 65536):
                self._said += drawn
        except OSError:
            pass
        return self._said.decode(errors="replace")

    def type(self, keys: bytes) -> None:
        """Presses keys."""
        os.write(self._terminal, keys)

    def until(self, text: str) -> None:
        """Waits until it has drawn something."""
        until(lambda: text in self.said or self.process.poll() is not None)
        assert text in self.said, self.said

    def end(self, within_s: float = WITHIN_S) -> int:
        """Waits for its end; returns the exit code."""
        until(lambda: self.said is not None and self.process.poll() is not None, within_s)
        return self.process.returncode
