"""Which values of stages a process has in shared memory, as the kernel sees it."""

import contextlib
import os
from pathlib import Path

import psutil


def values_below(pid: int) -> list[str]:
    """Returns the values that a process, or one that it started, has open or mapped."""
    found = []
    for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += _values_of(process.pid)
    return found


def _values_of(pid: int) -> list[str]:
    folder = Path(f"/proc/{pid}")
    files = (folder / "maps").read_text().splitlines()
    for name in (folder / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            files.append(os.readlink(name))
    return [f"process {pid}: {file}" for file in files if "memfd:value" in file]
