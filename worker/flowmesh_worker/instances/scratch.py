"""Where hosts write: a directory per worker process, swept when its process is gone."""

import fcntl
import os
import shutil
from pathlib import Path

from flowmesh_worker.ipc.host_directory import remove_host_folder

_LOCK = "lock"


class Scratch:
    """A directory that this process holds a lock in, so that others know it is in use.

    Attributes:
        host_folders: how many directories hosts have been given.
    """

    def __init__(self, root: Path, name: str) -> None:
        """Makes the directory and removes those of processes that have died.

        Args:
            root: shared by the workers of one cache directory.
            name: unique to this process.

        Raises:
            OSError: the directory cannot be made.
        """
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in root.iterdir():
            _remove_if_abandoned(left)
        self.path = root / name
        self.host_folders = 0
        self.path.mkdir(mode=0o700)
        self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def new_host_folder(self) -> Path:
        """Makes a directory that one host may write into.

        Raises:
            OSError: it cannot be made.
        """
        self.host_folders += 1
        folder = self.path / f"host-{self.host_folders}"
        folder.mkdir()
        return folder

    def remove(self) -> None:
        """Removes it with all that is in it."""
        _remove(self.path)
        os.close(self._lock)


def _remove(directory: Path) -> None:
    for folder in directory.glob("*/"):
        remove_host_folder(folder)
    shutil.rmtree(directory, ignore_errors=True)


def _remove_if_abandoned(directory: Path) -> None:
    try:
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return  # being made at this moment, or not ours
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(directory)
    except BlockingIOError:
        pass
    finally:
        os.close(lock)
