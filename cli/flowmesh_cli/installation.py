"""The command that installs a missing extra, for the remedies of errors."""

import shutil
import sys
from pathlib import Path

DISTRIBUTION = "flowmesh-fabric"
_PINS = Path(__file__).parent / "constraints"
"""The versions that extras were tested with, in a wheel and in a checkout."""


def install_command(extra: str) -> str:
    """Returns the command that adds an extra, such as ``worker-cpu``, to this installation.

    The installed distribution satisfies the requirement, wherever it came from, so no index needs
    to have it. The command uses uv, since pip has no overrides, and installs uv first where it is
    missing.
    """
    what = f"'{DISTRIBUTION}[{extra}]'"
    command = f"{_uv()} pip install --python {sys.executable} {what} -c {pins_file(extra)}"
    if extra == "worker-cpu":
        command += f" --overrides {_PINS / 'overrides-cpu.txt'}"
    return command


def worker_extra() -> str:
    """Returns the worker extra for this machine: the one for GPUs where it has NVIDIA's driver."""
    return "worker-gpu" if shutil.which("nvidia-smi") else "worker-cpu"


def pins_file(extra: str) -> Path:
    """Returns the file with the tested versions for an extra."""
    return _PINS / ("gpu.txt" if extra == "worker-gpu" else "cpu.txt")


def _uv() -> str:
    if shutil.which("uv"):
        return "uv"
    return f"{sys.executable} -m pip install uv && {sys.executable} -m uv"
