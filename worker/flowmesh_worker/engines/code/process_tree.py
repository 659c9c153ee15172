"""The processes below a process: lists, measures and kills them.

Used where a call has no memory group, and by the process that supervises a call without a PID
namespace.
"""

import contextlib
import os
import signal
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

_SHARES = frozenset({"Pss_Anon:", "Pss_Shmem:"})
_ROUNDS_MAX = 1_000
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int, spare: Collection[int] = ()) -> list[int]:
    """Returns the processes below a process, without itself and without those that have ended.

    Args:
        pid: the process.
        spare: processes that are left out, with all below them.
    """
    children = defaultdict(list)
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in spare and (parent := _parent(name)):
            children[parent].append(int(name))
    found: list[int] = []
    todo = [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def resident_mib(pids: Iterable[int]) -> float:
    """Returns an upper limit of :func:`tree_mib`, at a hundredth of its cost."""
    return sum(map(_resident_pages, pids)) * _PAGE_BYTES / (1 << 20)


def send_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Sends a signal to processes, those that have ended aside."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def tree_mib(pids: Iterable[int]) -> float:
    """Returns the memory of processes in MiB; a page that several of them share counts once."""
    return sum(map(_own_kib, pids)) / 1024


def kill_descendants(pid: int) -> None:
    """Kills all processes below a process, also those that are created meanwhile.

    Stopped processes create no others, so a few rounds find all but one that is created while its
    parent ends; :func:`end_children` finds that one too.
    """
    for _ in range(_ROUNDS_MAX):
        pids = descendants(pid)
        if not pids:
            return
        _kill(pids)


def end_children(spare: Collection[int] = ()) -> None:
    """Kills and reaps all processes below this one, which must adopt orphans.

    A process that has no children then has no descendants either.

    Args:
        spare: children that are left, with all below them.
    """
    if spare:
        _end_children_but(spare)
        return
    while True:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not ended:
            _kill(descendants(os.getpid()))


def _end_children_but(spare: Collection[int]) -> None:
    """Ends all others; one that a list missed leaves an ended parent, so another round follows."""
    own = os.getpid()
    while True:
        reaped = _reap_children(own, spare)
        living = descendants(own, spare)
        if living:
            _kill(living)
        elif not reaped:
            return


def _reap_children(own: int, spare: Collection[int]) -> int:
    """Reaps ended children; returns how many there were."""
    reaped = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in spare and _state(name) == (own, "Z"):
            with contextlib.suppress(ChildProcessError):
                reaped += os.waitpid(int(name), os.WNOHANG)[0] != 0
    return reaped


def _kill(pids: Sequence[int]) -> None:
    for number in (signal.SIGSTOP, signal.SIGKILL):
        send_all(pids, number)


def _parent(pid: str) -> int:
    """Returns the parent's id; 0 for a process that has ended."""
    parent, state = _state(pid)
    return 0 if state in "ZX" else parent


def _state(pid: str) -> tuple[int, str]:
    """Returns the parent's id and the state; ``X`` for a process that is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0, "X"
    state, parent = stat.rpartition(")")[2].split()[:2]
    return int(parent), state


def _resident_pages(pid: int) -> int:
    """Returns a process's pages, also those that it shares; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0


def _own_kib(pid: int) -> int:
    """Returns a process's proportional share of its anonymous and shared pages; 0 if it is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    sizes = (line.split() for line in text.splitlines())
    return sum(int(s[1]) for s in sizes if s[0] in _SHARES)
