"""Detects processes that the kernel killed for lack of memory, by the counters of the cgroup.

The engine hosts ask it what the end of a process or the failure of an engine means.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

_PROC = Path("/proc")


class OomKills:
    """Counts processes that the kernel killed for lack of memory, in this worker's cgroup.

    In cgroup v2 the count is in ``memory.events``, in v1 in ``memory.oom_control``; without
    either, ``/proc/vmstat`` has one count for the whole machine.
    """

    def __init__(self, files: tuple[Path, ...] | None = None) -> None:
        """Chooses the file to read.

        Args:
            files: candidates; the first with a line ``oom_kill N`` is used. None finds them.
        """
        candidates = tuple(_candidates()) if files is None else files
        self._file = next((f for f in candidates if _count(f) is not None), None)

    def count(self) -> int:
        """Returns the number so far; only differences are meaningful."""
        return (_count(self._file) or 0) if self._file is not None else 0


class KillCounter(Protocol):
    """Counts kills; implemented by :class:`OomKills`."""

    def count(self) -> int:
        """Returns the number so far."""
        ...


class OomVictims:
    """Decides to which host a process belonged that the kernel killed.

    The kernel only counts. A host that ends by SIGKILL, or whose engine fails, after the count has
    grown is taken for the victim. One kill explains only one failure.
    """

    def __init__(self, kills: KillCounter) -> None:
        self._kills = kills
        self._explained: dict[int, int] = {}

    def add(self, host_id: int) -> None:
        """Adds a host that starts; earlier kills do not explain its failures."""
        self._explained[host_id] = self._kills.count()

    def remove(self, host_id: int) -> None:
        """Removes a host that is gone."""
        del self._explained[host_id]

    def blame(self, host_id: int) -> bool:
        """Returns whether a kill explains a failure in a host; it then explains no other's."""
        count = self._kills.count()
        if count <= self._explained[host_id]:
            return False
        for other, explained in self._explained.items():
            self._explained[other] = min(count, explained + 1)
        self._explained[host_id] = count
        return True


def _candidates() -> Iterator[Path]:
    for line in _lines(_PROC / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            roots, name = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")], "memory.events"
        elif "memory" in controllers.split(","):
            roots, name = [Path("/sys/fs/cgroup/memory")], "memory.oom_control"
        else:
            continue
        for root in roots:
            # In a container the path is often that of the machine, while the mount is the group.
            yield root / path.lstrip("/") / name
            yield root / name
    yield _PROC / "vmstat"


def _count(file: Path) -> int | None:
    for line in _lines(file):
        name, _, value = line.partition(" ")
        if name == "oom_kill":
            return int(value)
    return None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
