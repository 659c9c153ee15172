"""Runs the same workflows on this machine with ``fmesh run``, without a cluster."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.harness.downloads import digests

WITHIN_S = 600.0


@dataclass
class Laptop:
    """A local fabric in a state folder."""

    folder: Path

    def run(self, files: Sequence[Path]) -> list[dict[str, Any]]:
        """Runs workflows to their end; returns their last status.

        Raises:
            AssertionError: a workflow failed.
        """
        found: list[dict[str, Any]] = self._answer("run", *map(str, files), "--workers=1")["runs"]
        return found

    def outputs(self, name: str) -> dict[str, str]:
        """Returns digests of the files of a run's outputs."""
        to = self.folder / "outputs" / name
        self._answer("outputs", name, "--download", str(to))
        return digests(to)

    def _answer(self, *words: str) -> Any:
        state = f"--state-dir={self.folder / 'state'}"
        done = subprocess.run(
            [sys.executable, "-m", "flowmesh_cli", *words, state, "--local", "--json"],
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
            env={k: v for k, v in os.environ.items() if k != "KUBECONFIG"},
        )
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return json.loads(done.stdout)
