"""Writes the built-in model to a folder, for programs that read a model from there."""

import subprocess
import sys
from pathlib import Path

NAME = "smollm2-135m-instruct"
_BUILD = (
    "import sys; from pathlib import Path;"
    "from flowmesh_worker.engines.models.builtin import build;"
    "build(sys.argv[1], Path(sys.argv[2]))"
)


def builtin_model(folder: Path) -> Path:
    """Returns a new directory with the model; a process of its own converts it."""
    target = folder / NAME
    subprocess.run([sys.executable, "-c", _BUILD, NAME, str(target)], check=True)
    return target
