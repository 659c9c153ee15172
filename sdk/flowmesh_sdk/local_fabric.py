"""Finds the fabric that serves a state folder, and starts one.

The owner of a state folder has an exclusive lock on its file ``owner`` while it lives, and writes
its address and token into it.
"""

import atexit
import contextlib
import fcntl
import importlib.util
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flowmesh_api.decoding import decode
from flowmesh_sdk.errors import NoFabricError

if TYPE_CHECKING:
    import subprocess

STATE_DIR = "FLOWMESH_STATE_DIR"
DEFAULT_STATE_DIR = ".flowmesh"
_START_S = 60.0
_STOP_S = 30.0
_POLL_S = 0.05
_COMMAND = "flowmesh_cli"
_MODEL_LIBRARY = "torch"
"""Of each worker extra."""
_REFUSED = 4
"""The exit code of ``fmesh`` for what cannot run."""


class Owner(msgspec.Struct, frozen=True):
    """The process that serves a state folder.

    Attributes:
        url: of the API; empty while the owner starts.
        token: of the API.
        serves: ``read`` where it answers queries and has no workers.
    """

    pid: int
    url: str = ""
    token: str = ""
    serves: str = "run"


def state_folder(given: str | Path | None = None) -> Path:
    """Returns the folder that is given, that of ``FLOWMESH_STATE_DIR``, or ``.flowmesh``."""
    return Path(given or os.environ.get(STATE_DIR) or DEFAULT_STATE_DIR).absolute()


def running(folder: Path) -> Owner | None:
    """Returns the living owner that runs workflows; None where there is none."""
    file = folder / "owner"
    if not _is_locked(file):
        return None
    try:
        owner = decode(_decoder, file.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    return owner if owner.url and owner.serves != "read" else None


def start(folder: Path) -> Owner:
    """Starts ``fmesh up`` on a folder; it ends with this process.

    Raises:
        NoFabricError: FlowMesh itself is not installed here, or the fabric does not start.
    """
    if importlib.util.find_spec(_COMMAND) is None:
        raise NoFabricError(
            "no fabric is running here, and only the client is installed",
            where=str(folder),
            remedy="install FlowMesh here too, from a clone as its README says, or set "
            "FLOWMESH_SERVER and FLOWMESH_TOKEN",
        )
    # Imported here, as is tarfile elsewhere: most programs connect to what is there.
    import subprocess  # noqa: PLC0415
    import tempfile  # noqa: PLC0415

    command = [sys.executable, "-m", _COMMAND, "up", "--state-dir", str(folder)]
    with tempfile.TemporaryFile("w+") as written:  # a pipe that is not read would fill and block it
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=written,
            start_new_session=True,  # Ctrl-C is this program's: the fabric cancels what it is asked
        )
        atexit.register(_stop, process)
        end = time.monotonic() + _START_S
        while (owner := running(folder)) is None:
            ended = process.poll()
            if ended is not None or time.monotonic() > end:
                _stop(process)
                written.seek(0)
                why = written.read().strip() or f"no answer within {_START_S:.0f} s"
                raise NoFabricError(
                    f"the fabric did not start: {why}",
                    where=str(folder),
                    remedy="run `fmesh up` in a terminal to see all that it writes",
                )
            time.sleep(_POLL_S)
    return owner


def refuse_unrunnable(document: Mapping[str, Any], folder: Path, state: Path) -> None:
    """Refuses a workflow that no worker of this installation can run, before a fabric is started.

    That is ``fmesh validate``, where no worker extra is installed. Other mistakes are found, with
    all that admission knows, when the workflow is submitted.

    Args:
        document: the workflow.
        folder: where relative paths of its inputs start.
        state: the folder of the fabric to be.

    Raises:
        NoFabricError: with the missing libraries and the command that installs them.
    """
    if importlib.util.find_spec(_COMMAND) is None or importlib.util.find_spec(_MODEL_LIBRARY):
        return
    import subprocess  # noqa: PLC0415 - see start

    command = [sys.executable, "-m", _COMMAND, "validate", "-", "--json", "--local"]
    done = subprocess.run(
        [*command, "--state-dir", str(state)],
        input=msgspec.json.encode(document),
        capture_output=True,
        cwd=folder,
        check=False,
    )
    if done.returncode == _REFUSED:
        error = decode(_refusals, done.stdout).error
        raise NoFabricError(error.message, where=error.where, remedy=error.remedy)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    import subprocess  # noqa: PLC0415

    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_S)


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class _Refusal(msgspec.Struct):
    message: str
    where: str
    remedy: str


class _RefusalDocument(msgspec.Struct):
    """What ``fmesh --json`` writes of an error."""

    error: _Refusal


_decoder = msgspec.json.Decoder(Owner)
_refusals = msgspec.json.Decoder(_RefusalDocument)
