"""A peer of the fabric: a script in its own environment that gets orders line by line."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ENVIRONMENTS = {"ray": "FLOWMESH_RAY_PYTHON", "dask": "FLOWMESH_DASK_PYTHON"}
"""Variables that name each peer's Python; ``make`` sets them."""
ANSWER_WITHIN_S = 300.0
_ALWAYS = {"RAY_worker_niceness": "0"}
"""Ray runs its workers at a low priority, which would distort times on a busy machine."""
_NOT_INHERITED = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")


def python_of(peer: str) -> str:
    """Returns the Python of a peer's environment; exits where the variable is not set."""
    named = os.environ.get(ENVIRONMENTS[peer], "")
    if not named:
        sys.exit(f"{ENVIRONMENTS[peer]} is not set: run this by `make bench-...`, which sets it")
    return named


class Peer:
    """A running script that has reported that it is ready."""

    def __init__(
        self, python: str, script: str, *arguments: str, more: Mapping[str, str] | None = None
    ) -> None:
        """Starts a script of this folder and waits until it is warm.

        Args:
            python: the Python of its environment.
            script: its file name, or the path of a script of another checkout.
            arguments: its command-line arguments.
            more: additional environment variables.
        """
        self._script = script
        self._process = subprocess.Popen(
            [python, str(Path(__file__).parent / script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**self._inherited(), **_ALWAYS, **(more or {})},
        )
        self.ready = self._answer()

    @staticmethod
    def _inherited() -> dict[str, str]:
        return {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def ask(self, do: str, **order: Any) -> dict[str, Any]:
        """Sends an order and returns the answer, without blocking the event loop.

        Raises:
            RuntimeError: the script ended, or did not answer in time and was killed.
        """
        line = json.dumps({"do": do, **order})
        request = asyncio.create_task(asyncio.to_thread(self._send, line))
        done, _ = await asyncio.wait([request], timeout=ANSWER_WITHIN_S)
        if not done:
            self._process.kill()
            await asyncio.wait([request])
            raise RuntimeError(f"bench/{self._script} did not answer {line}; run it by hand")
        return request.result()

    def stop(self) -> None:
        """Ends the script."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _send(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        """Returns the next line that is an answer; libraries may print others."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        raise RuntimeError(f"bench/{self._script} ended; run it by hand to see why")
