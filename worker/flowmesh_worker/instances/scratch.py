"""The scratch directory of a worker process, in which hosts write.

The next worker with the same cache directory removes those of processes that have died.
"""

import fcntl
import os
import shutil
from pathlib import Path

from flowmesh_worker.ipc.host_directory import remove_host_folder

_LOCK = "lock"


class Scratch:
    """A directory with a lock, by which other processes see that it is in use.

    Attributes:
        path: the directory.
        host_folders: number of directories that were made for hosts.
    """

    def __init__(self, root: Path, name: str) -> None:
        """Creates the directory and removes those of processes that have died.

        Args:
            root: shared by the workers of one cache directory.
            name: unique to this process.

        Raises:
            OSError: the directory cannot be created.
        """
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for directory in root.iterdir():
            _remove_if_abandoned(directory)
        self.path = root / name
        self.host_folders = 0
        self.path.mkdir(mode=0o700)
        self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def new_host_folder(self) -> Path:
        """Creates a directory that one host may write into.

        Raises:
            OSError: it cannot be created.
        """
        self.host_folders += 1
        folder = self.path / f"host-{self.host_folders}"
        folder.mkdir()
        return folder

    def remove(self) -> None:
        """Removes the directory with its contents."""
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
        return  # it is being created at this moment, or is not a scratch directory
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(directory)
    except BlockingIOError:
        pass
    finally:
        os.close(lock)
