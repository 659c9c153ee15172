"""Whether the kernel killed for want of memory: the counters of the cgroup, or the machine's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

_PROC = Path("/proc")


class OomKills:
    """Reads how many processes were killed for want of memory where this worker runs.

    In cgroup v2 the count is in ``memory.events``, in v1 in ``memory.oom_control``; a machine
    without either has one count for all in ``/proc/vmstat``.
    """

    def __init__(self, files: tuple[Path, ...] | None = None) -> None:
        """Takes the files that count.

        Args:
            files: each with a line ``oom_kill N``; the first that has one is used. None finds them.
        """
        candidates = tuple(_candidates()) if files is None else files
        self._file = next((f for f in candidates if _count(f) is not None), None)

    def count(self) -> int:
        """How many so far; compare two readings."""
        return (_count(self._file) or 0) if self._file is not None else 0


class KillCounter(Protocol):
    """What counts kills: :class:`OomKills`."""

    def count(self) -> int:
        """How many so far."""
        ...


class OomVictims:
    """Decides which host a process belonged to that the kernel killed.

    The kernel only counts. A host that ends by SIGKILL, or whose engine fails, after the count has
    grown is taken for the victim; the same kill then explains no end in another host.
    """

    def __init__(self, kills: KillCounter) -> None:
        self._kills = kills
        self._explained: dict[int, int] = {}

    def add(self, host_id: int) -> None:
        """Watches a host that starts; kills before that are not its."""
        self._explained[host_id] = self._kills.count()

    def remove(self, host_id: int) -> None:
        """Forgets a host that is gone."""
        del self._explained[host_id]

    def blame(self, host_id: int) -> bool:
        """Returns whether a failure in a host is explained by a kill, which no other's is then."""
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
            # In a container the path is often the host's and the mount shows the group itself.
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
