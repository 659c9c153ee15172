"""Runs ``fmesh`` as a user does: as a process."""

import os
import subprocess
import sys
from pathlib import Path


def fmesh(*arguments: str | Path, cwd: Path, timeout_s: float = 60) -> subprocess.CompletedProcess:
    """Runs the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "flowmesh_cli", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "TERM": "dumb"},
        check=False,
    )
