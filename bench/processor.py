"""CPU time of processes and their descendants, from Linux' ``/proc``."""

import os
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_NAME_ENDS = b") "
_PARENT, _OWN, _ENDED = 1, (11, 12), (13, 14)
"""Fields of ``/proc/PID/stat`` after the name: its own times, and those of ended children."""

_SCHEDULED_TIME = 2
"""``CPUCLOCK_SCHED``: with a process' inverted id it is that process' clock, see
``clock_getcpuclockid(3)``."""


def trees_s(roots: Iterable[int]) -> float:
    """Returns CPU seconds of the processes and their descendants, with ended ones."""
    spent: dict[int, float] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_bytes().rpartition(_NAME_ENDS)[2].split()
            except OSError:
                continue  # it has ended
            children[int(fields[_PARENT])].append(int(folder.name))
            spent[int(folder.name)] = sum(int(fields[n]) for n in (*_OWN, *_ENDED)) * _TICK_S
    total, pending = 0.0, list(roots)
    while pending:
        process = pending.pop()
        total += spent.get(process, 0.0)
        pending += children[process]
    return total


def process_s(pid: int) -> float:
    """Returns CPU seconds of all threads of a process, without its children, to the nanosecond."""
    return time.clock_gettime((~pid << 3) | _SCHEDULED_TIME)


def own_s() -> float:
    """Returns CPU seconds of this process only."""
    times = os.times()
    return times.user + times.system
