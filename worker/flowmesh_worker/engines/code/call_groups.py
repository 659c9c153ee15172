"""Control groups that limit the memory and the processes of one call of users' code.

RLIMIT_AS limits each process by itself, so 20 children may use 20 times the limit; a group limits
them together. Version 2 needs a delegated control group (a container with a writable cgroup file
system, or ``systemd-run --scope -p Delegate=yes``), version 1 needs root. Without either the
watcher of :mod:`call_limits` measures the processes.
"""

import itertools
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from flowmesh_core.errors import FlowMeshError

PIDS_MAX = 64
PREFIX = "flowmesh-code-"
_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_WORKER_GROUP = "flowmesh-worker"
_CONTROLLERS = ("memory", "pids")
_VERSION_2 = 2
_ROUNDS_MAX = 1_000
_numbers = itertools.count(1)


class CallGroup(Protocol):
    """The control group of one call."""

    def add(self, pid: int) -> None:
        """Moves a process into the group; its later children are in it too."""
        ...

    def out_of_memory(self) -> bool:
        """Whether the kernel killed one of its processes because of the group's memory limit."""
        ...

    def close(self) -> None:
        """Kills its processes and removes the group; does nothing if the kernel is not ready.

        Such a group is removed by :func:`open_groups` of a later worker.
        """
        ...


class CallGroups(Protocol):
    """Creates groups; one implementation for each version of control groups."""

    def create(self, memory_bytes: int) -> CallGroup:
        """Creates a group of at most ``PIDS_MAX`` tasks.

        Raises:
            OSError: the kernel does not permit it.
        """
        ...


def groups_version(root: Path = _ROOT) -> int:
    """Returns the version of the mounted control groups: 2, 1, or 0 where there are none.

    Args:
        root: where they are mounted.
    """
    if (root / "cgroup.controllers").exists():
        return _VERSION_2
    return 1 if (root / _CONTROLLERS[0]).is_dir() else 0


def open_groups(root: Path = _ROOT, own: Path = _OWN) -> CallGroups:
    """Returns what creates groups below this process's own, after a trial.

    Args:
        root: where the control groups are mounted.
        own: lists this process's groups.

    Raises:
        FlowMeshError: the machine does not permit groups; the message says why.
    """
    try:
        paths = _own_paths(own)
        groups: CallGroups
        if groups_version(root) == _VERSION_2:
            groups = GroupsV2(root / paths[""].lstrip("/"))
        else:
            groups = GroupsV1({name: _below(root / name, paths[name]) for name in _CONTROLLERS})
        groups.create(64 << 20).close()
    except (OSError, KeyError) as error:
        reason = getattr(error, "strerror", "") or f"no controller {error}"
        raise FlowMeshError(f"no memory group can be created: {reason}") from error
    return groups


class GroupsV1:
    """Groups of version 1: one directory for memory and one for processes."""

    def __init__(self, parents: Mapping[str, Path]) -> None:
        """Removes the groups of earlier workers.

        Args:
            parents: this process's own directory by controller.
        """
        self._parents = parents
        for parent in parents.values():
            _remove_stale(parent)

    def create(self, memory_bytes: int) -> CallGroup:
        """See :class:`CallGroups`."""
        name = _new_name()
        memory, pids = (self._parents[c] / name for c in _CONTROLLERS)
        group = _GroupV1(memory, pids)
        try:
            memory.mkdir()
            (memory / "memory.limit_in_bytes").write_text(str(memory_bytes))
            with suppress(OSError):  # kernels that do not count swap
                (memory / "memory.memsw.limit_in_bytes").write_text(str(memory_bytes))
            (memory / "memory.swappiness").write_text("0")
            pids.mkdir()
            (pids / "pids.max").write_text(str(PIDS_MAX))
        except OSError:
            group.close()
            raise
        return group


class _GroupV1:
    def __init__(self, memory: Path, pids: Path) -> None:
        self._memory = memory
        self._pids = pids

    def add(self, pid: int) -> None:
        for path in (self._memory, self._pids):
            (path / "cgroup.procs").write_text(str(pid))

    def out_of_memory(self) -> bool:
        # Version 1 kills one process at a time; the caller then ends the others.
        return _counter(self._memory / "memory.oom_control", "oom_kill") > 0

    def close(self) -> None:
        _kill_all(self._memory / "cgroup.procs")
        for path in (self._memory, self._pids):
            _remove(path)


class GroupsV2:
    """Groups of version 2: directories beside the one that the worker's own processes are in."""

    def __init__(self, own: Path) -> None:
        """Enables the controllers, and removes the groups of earlier workers.

        A group with processes cannot pass controllers on, so the worker's processes move into a
        group of their own first: only if the group has no others.

        Args:
            own: this process's directory.

        Raises:
            OSError: the group is not delegated to this user.
        """
        self._parent = own.parent if own.name == _WORKER_GROUP else own
        enabled = (self._parent / "cgroup.subtree_control").read_text().split()
        if not set(_CONTROLLERS) <= set(enabled):
            _move_own(self._parent)
            wanted = " ".join(f"+{name}" for name in _CONTROLLERS)
            (self._parent / "cgroup.subtree_control").write_text(wanted)
        _remove_stale(self._parent)

    def create(self, memory_bytes: int) -> CallGroup:
        """See :class:`CallGroups`."""
        path = self._parent / _new_name()
        group = _GroupV2(path)
        try:
            path.mkdir()
            (path / "memory.max").write_text(str(memory_bytes))
            with suppress(OSError):  # kernels without swap
                (path / "memory.swap.max").write_text("0")
            (path / "memory.oom.group").write_text("1")
            (path / "pids.max").write_text(str(PIDS_MAX))
        except OSError:
            group.close()
            raise
        return group


class _GroupV2:
    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, pid: int) -> None:
        (self._path / "cgroup.procs").write_text(str(pid))

    def out_of_memory(self) -> bool:
        return _counter(self._path / "memory.events", "oom_kill") > 0

    def close(self) -> None:
        with suppress(OSError):
            (self._path / "cgroup.kill").write_text("1")
        _kill_all(self._path / "cgroup.procs")
        _remove(self._path)


def _move_own(parent: Path) -> None:
    """Moves this process, the only one in its group, into a group below."""
    if _pids(parent / "cgroup.procs") != [os.getpid()]:
        raise OSError(0, "this control group is not the worker's own")
    leaf = parent / _WORKER_GROUP
    leaf.mkdir(exist_ok=True)
    (leaf / "cgroup.procs").write_text(str(os.getpid()))


def _own_paths(own: Path) -> dict[str, str]:
    """Returns this process's path by controller; version 2 has the controller ''."""
    paths = {}
    for line in own.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _below(root: Path, path: str) -> Path:
    """Returns a group's directory; the root where another container's view is mounted."""
    found = root / path.lstrip("/")
    return found if found.is_dir() else root


def _new_name() -> str:
    return f"{PREFIX}{os.getpid()}-{next(_numbers)}"


def _remove_stale(parent: Path) -> None:
    """Removes empty groups whose worker does not run any more."""
    for path in parent.glob(f"{PREFIX}*"):
        pid = path.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            _kill_all(path / "cgroup.procs")
            _remove(path)


def _kill_all(file: Path) -> None:
    """Kills the processes of a group until there are none; they may still create others."""
    for _ in range(_ROUNDS_MAX):
        pids = _pids(file)
        if not pids:
            return
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _pids(file: Path) -> list[int]:
    try:
        return [int(line) for line in file.read_text().split()]
    except OSError:
        return []


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.rmdir()


def _counter(file: Path, name: str) -> int:
    with suppress(OSError):
        for line in file.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0
