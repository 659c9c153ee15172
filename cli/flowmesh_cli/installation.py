"""The command that installs a missing extra, for the remedies of errors."""

import shutil
import sys
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlparse

import msgspec

from flowmesh_core.decoding import decode


class _Origin(msgspec.Struct, frozen=True):
    """What of ``direct_url.json`` counts here."""

    url: str


_decoder = msgspec.json.Decoder(_Origin)
DISTRIBUTION = "flowmesh-fabric"
_PINS = Path("constraints")


def install_command(extra: str) -> str:
    """Returns the command that adds an extra, such as ``worker-cpu``, to this installation.

    It uses uv, since pip has no overrides, and installs uv first where it is missing. FlowMesh is
    not on a package index: the command names the checkout that it was installed from, or asks for
    one.
    """
    folder = _checkout()
    what, pins = (f"{folder}[{extra}]", folder / _PINS) if folder else (f".[{extra}]", _PINS)
    command = f"{_uv()} pip install --python {sys.executable} '{what}' -c {pins / _pins_of(extra)}"
    if extra == "worker-cpu":
        command += f" --overrides {pins / 'overrides-cpu.txt'}"
    return command if folder else f"in a checkout of FlowMesh: {command}"


def worker_extra() -> str:
    """Returns the worker extra for this machine: the one for GPUs where it has NVIDIA's driver."""
    return "worker-gpu" if shutil.which("nvidia-smi") else "worker-cpu"


def pins_file(extra: str) -> Path | None:
    """Returns the file with the tested versions for an extra; None without the source tree."""
    folder = _checkout()
    return folder / _PINS / _pins_of(extra) if folder else None


def _pins_of(extra: str) -> str:
    return "gpu.txt" if extra == "worker-gpu" else "cpu.txt"


def _uv() -> str:
    if shutil.which("uv"):
        return "uv"
    return f"{sys.executable} -m pip install uv && {sys.executable} -m uv"


def _checkout() -> Path | None:
    """Returns the source tree that this runs or was installed from, if it still exists."""
    candidates = [Path(__file__).parents[2], _installed_from()]
    return next((c for c in candidates if c and (c / _PINS / "cpu.txt").is_file()), None)


def _installed_from() -> Path | None:
    """Returns the folder that pip or uv recorded (PEP 610)."""
    try:
        recorded = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    if recorded is None:
        return None
    try:
        url = urlparse(decode(_decoder, recorded.encode()).url)
    except msgspec.DecodeError:
        return None
    path = Path(unquote(url.path))
    return path if url.scheme == "file" and path.is_dir() else None
