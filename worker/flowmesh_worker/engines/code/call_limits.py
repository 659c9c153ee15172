"""Limits the memory and the number of the processes of one call of users' code.

With a memory group the kernel limits them. Without one the processes are counted every 30 ms, and
measured every 10 ms once there are several; RLIMIT_AS limits a single one. They are killed beyond a
limit, and may exceed it in between.
"""

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

from flowmesh_core.errors import FlowMeshError
from flowmesh_worker.engines.code.call_groups import (
    PIDS_MAX,
    CallGroup,
    CallGroups,
    open_groups,
)
from flowmesh_worker.engines.code.limits import SandboxRequest
from flowmesh_worker.engines.code.process_tree import (
    descendants,
    kill_descendants,
    resident_mib,
    send_all,
    tree_mib,
)

_INTERPRETER_MIB = 64
"""The interpreter's own memory, in addition to the code's."""
_WATCH_EVERY_S = 0.03
_MEASURE_EVERY_S = 0.01
_SEVERAL = 2
"""Processes that the sandbox itself has: the one that runs the code, and its supervisor."""
_NICE = 10
_MIB = 1 << 20
NO_GROUP = "a memory group"


@cache
def machine_groups() -> CallGroups | str:
    """Returns what creates memory groups on this machine, or why nothing does."""
    try:
        return open_groups()
    except FlowMeshError as error:
        return error.message


@dataclass
class CallLimits:
    """The limits of one call: :meth:`begin` before the process gets the code, :meth:`end` after it.

    Attributes:
        exceeded: what the call had more of than it may, once it was killed for that; else empty.
        lacks: why there is no memory group; empty where there is one.
    """

    task: SandboxRequest
    exceeded: str = ""
    lacks: str = ""
    _pid: int = 0
    _group: CallGroup | None = None
    _watching: "asyncio.Task[None] | None" = field(default=None, repr=False)

    def begin(self, pid: int, groups: CallGroups | str) -> None:
        """Limits a process and its future children.

        Args:
            pid: of a process that has not read the code yet.
            groups: of the machine, or why it has none.
        """
        self._pid = pid
        if isinstance(groups, str):
            self.lacks = f"{NO_GROUP} ({groups})"
        else:
            # Files in /tmp are memory too.
            mib = self.task.memory_mib + _INTERPRETER_MIB + self.task.file_mib
            try:
                self._group = groups.create(mib * _MIB)
                self._group.add(pid)
            except OSError as error:
                self.lacks = f"{NO_GROUP} ({error.strerror or error})"
        if self._group is None:
            with suppress(OSError):  # else many processes would keep the watcher from the processor
                os.setpriority(os.PRIO_PROCESS, pid, _NICE)
        self._watching = asyncio.create_task(self._watch())

    async def end(self) -> None:
        """Kills what is left of the call."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._group is not None:
            if self._group.out_of_memory():
                self.exceeded = self._memory()
            await asyncio.to_thread(self._group.close)
        else:
            await asyncio.to_thread(kill_descendants, self._pid)

    async def _watch(self) -> None:
        wait_s = _WATCH_EVERY_S
        while not self.exceeded:
            await asyncio.sleep(wait_s)
            if self._group is None:
                wait_s = await asyncio.to_thread(self._measure)
            elif self._group.out_of_memory():
                self.exceeded = self._memory()
                await asyncio.to_thread(self._group.close)

    def _measure(self) -> float:
        """Kills the processes if they exceed a limit; returns when to look again, in seconds."""
        pids = descendants(self._pid)
        if len(pids) < _SEVERAL:
            return _WATCH_EVERY_S
        if len(pids) > PIDS_MAX:
            self.exceeded = f"{PIDS_MAX} processes"
        elif self._too_large(pids):
            self.exceeded = self._memory()
        if self.exceeded:
            kill_descendants(self._pid)
        return _MEASURE_EVERY_S

    def _too_large(self, pids: list[int]) -> bool:
        """Measures; stops the processes meanwhile, since measuring takes longer than allocating."""
        limit_mib = self.task.memory_mib + _INTERPRETER_MIB
        if resident_mib(pids) <= limit_mib:
            return False
        send_all(pids, signal.SIGSTOP)
        if tree_mib(pids) > limit_mib:
            return True
        send_all(pids, signal.SIGCONT)
        return False

    def _memory(self) -> str:
        return f"{self.task.memory_mib} MiB of memory"
