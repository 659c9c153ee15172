"""A real ``fmesh up`` as a process of its own, and what it and its state folder use.

Called by the soaks of the store and of many workflows.
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

import flowmesh_sdk as fm

_BLOCK_BYTES = 512
_END_TIMEOUT_S = 60.0
STORE_FOLDERS = ("cas", "actions", "runs", "lineage", "ended", "other")
"""What the size of a state folder is shown by."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a fabric uses at one moment.

    Attributes:
        control_bytes: resident memory of ``fmesh up``, which has the control plane.
        worker_bytes: resident memory of its workers and their engine hosts.
        descriptors: open file descriptors of all of them.
        store_bytes: of the disk, by folder; without the workers' caches.
    """

    control_bytes: int
    worker_bytes: int
    descriptors: int
    store_bytes: Mapping[str, int]

    @property
    def stored_bytes(self) -> int:
        """The size of the store."""
        return sum(self.store_bytes.values())


@dataclass(frozen=True, slots=True)
class UpProcess:
    """A fabric that serves a state folder.

    Attributes:
        process: of ``fmesh up``.
        folder: its state folder.
    """

    process: psutil.Process
    folder: Path

    def client(self) -> fm.Client:
        """Returns a client for one thread."""
        return fm.connect(state_dir=self.folder, start=False)

    def usage(self) -> Usage:
        """Measures it now."""
        worker_bytes, descriptors = 0, self.process.num_fds()
        for child in self.process.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                worker_bytes += child.memory_info().rss
                descriptors += child.num_fds()
        control_bytes = self.process.memory_info().rss
        return Usage(control_bytes, worker_bytes, descriptors, _sizes(self.folder))


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[UpProcess]:
    """Yields a fabric with two workers that serves the folder, and stops it.

    The request log is off: by design it stays for 400 days.
    """
    command = [sys.executable, "-m", "flowmesh_cli", "up", "--json", "--workers", "2"]
    process = subprocess.Popen(
        [*command, "--state-dir", str(folder), *options],
        env={**os.environ, "FLOWMESH_REQUEST_LOG": "false"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        answer = json.loads("".join(_until_brace(process.stdout)))
        yield UpProcess(psutil.Process(process.pid), Path(answer["state_dir"]))
        if process.poll() is not None:
            raise RuntimeError(f"fmesh up has ended with {process.returncode}")
    finally:
        process.terminate()
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until_brace(lines: Iterable[str]) -> Iterator[str]:
    """Yields the lines of a JSON object that is written over several of them."""
    for line in lines:
        yield line
        if line.startswith("}"):
            return


def _sizes(folder: Path) -> dict[str, int]:
    """Returns the bytes that a state folder takes of the disk, by :data:`STORE_FOLDERS`."""
    found: defaultdict[str, int] = defaultdict(int)
    for root, folders, files in os.walk(folder):
        parts = Path(root).relative_to(folder).parts
        if not parts and "workers" in folders:
            folders.remove("workers")
        part = parts[0] if parts and parts[0] in STORE_FOLDERS else "other"
        for name in [*folders, *files]:
            with suppress(FileNotFoundError):
                found[part] += os.lstat(f"{root}/{name}").st_blocks * _BLOCK_BYTES
    return {part: found[part] for part in STORE_FOLDERS}
