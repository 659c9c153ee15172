"""Hosts that have imported an engine's libraries and wait to be told what to load.

One is kept for every preparation that work asked for within the last minutes, once the control
plane tells this worker what to hold open: such a worker serves many workflows, and the next engine
of a kind is likely. One is prepared at a time, and only while no engine loads or waits to, which
needs processors and memory more. Whoever opens a host takes a prepared one, finished or not, and
the next is begun once its engine has loaded. On a CPU, memory that a prepared host holds is
reserved like a lane's, and given up as soon as that makes room for a lane.
"""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from flowmesh_core.protocol.messages import Assignment, PrewarmSpec
from flowmesh_worker.engines.preload import HostPreload
from flowmesh_worker.engines.registry import Engines
from flowmesh_worker.instances.host_process import HostProcess, host_environment
from flowmesh_worker.instances.memory_budget import MemoryBudget, Reservation
from flowmesh_worker.ipc.frames import FromHost, Prepare, Prepared

KEPT_S = 600.0
"""A kind of host that nothing has asked for so long is not kept prepared any longer."""
_LINES_TOLD = 3
_log = logging.getLogger(__name__)


class StandbyHost:
    """One of them: starting, then importing, then ready.

    Attributes:
        folder: where it writes; who takes it removes that with it.
    """

    def __init__(
        self,
        folder: Path,
        reservation: Reservation | None,
        on_ready: Callable[[], None],
        on_gone: Callable[["StandbyHost"], None],
    ) -> None:
        """Takes what it owns, and who is told that it is ready, or gone."""
        self.folder = folder
        self.reservation = reservation
        self.ready = False
        self._on_ready = on_ready
        self._on_gone = on_gone
        self.process = HostProcess(self._told, _unheard, self._exited)

    async def start(self, prepare: Prepare, environment: Mapping[str, str]) -> None:
        """Starts the process and has it import."""
        try:
            await self.process.start({**environment, "TMPDIR": str(self.folder)})
        except OSError as error:
            self._end(str(error))
            return
        self.process.send(prepare)

    def _told(self, message: FromHost) -> None:
        if isinstance(message, Prepared):
            self.ready = not message.error
            if self.ready:
                self._on_ready()
            else:
                self.process.log.append(message.error)
                self._on_gone(self)

    def _exited(self, code: int) -> None:
        self._end(f"exit code {code}")

    def _end(self, why: str) -> None:
        self.process.log.append(why)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._on_gone(self)


class StandbyHosts:
    """Keeps them, and hands them out."""

    def __init__(
        self,
        engines: Engines,
        budget: MemoryBudget,
        cpus: int,
        folder: Callable[[], Path],
        busy: Callable[[], bool],
    ) -> None:
        """Takes what hosts are prepared for.

        Args:
            engines: those there are.
            budget: the memory that lanes reserve.
            cpus: CPU threads of the worker.
            folder: makes a folder for a host's files.
            busy: whether an engine loads, or an attempt waits for the memory to.
        """
        self._engines = engines
        self._budget = budget
        self._cpus = cpus
        self._folder = folder
        self._busy = busy
        self._allowed = False
        self._hosts: dict[HostPreload, StandbyHost] = {}
        self._asked: dict[HostPreload, asyncio.TimerHandle] = {}
        self._failed: set[HostPreload] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def allow(self) -> None:
        """From now on hosts are prepared."""
        self._allowed = True
        self.go_on()

    def asked(self, wanted: Assignment | PrewarmSpec) -> None:
        """An attempt or an opening has come that may need a host of its engine."""
        if not self._allowed:
            return
        preparation = self._engines.preparation(wanted.engine, wanted.signature_params)
        if preparation is None:
            return
        timer = self._asked.pop(preparation, None)
        if timer is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._asked[preparation] = loop.call_later(KEPT_S, self._forget, preparation)
        self.go_on()

    def take(self, wanted: Assignment | PrewarmSpec) -> StandbyHost | None:
        """A host on its way, which is the caller's from now on; None where there is none."""
        preparation = self._engines.preparation(wanted.engine, wanted.signature_params)
        if preparation is None or preparation not in self._hosts:
            return None
        return self._drop(preparation)

    @property
    def reserved(self) -> list[Reservation]:
        """What :meth:`give_way` would give back."""
        return [host.reservation for host in self._hosts.values() if host.reservation is not None]

    def give_way(self) -> None:
        """Ends those that hold memory which a lane could have."""
        for preparation in [p for p, h in self._hosts.items() if h.reservation is not None]:
            self._end(preparation)

    def go_on(self) -> None:
        """Begins the next one where it is time."""
        if not self._allowed or self._busy() or not all(h.ready for h in self._hosts.values()):
            return
        for preparation in reversed(self._asked):
            if preparation not in self._hosts and preparation not in self._failed:
                self._begin(preparation)
                return

    async def close(self) -> None:
        """Ends all; none is prepared after this."""
        self._allowed = False
        for timer in self._asked.values():
            timer.cancel()
        self._asked.clear()
        for preparation in list(self._hosts):
            self._end(preparation)
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, preparation: HostPreload) -> None:
        on_devices = self._engines.on_devices
        reservation = None
        if not on_devices:
            reservation = self._budget.reserve(preparation.memory_mib, 0)
            if reservation is None:
                return
        try:
            folder = self._folder()
        except OSError as error:
            self._give_up(preparation, str(error))
            if reservation is not None:
                self._budget.release(reservation)
            return
        host = StandbyHost(folder, reservation, self.go_on, partial(self._gone, preparation))
        self._hosts[preparation] = host
        prepare = Prepare(preparation.modules, self._cpus, on_devices)
        environment = host_environment(os.environ, self._cpus)
        self._do(host.start(prepare, environment))

    def _gone(self, preparation: HostPreload, host: StandbyHost) -> None:
        if self._hosts.get(preparation) is not host:
            return
        self._end(preparation)
        if not host.ready:
            self._give_up(preparation, "; ".join(list(host.process.log)[-_LINES_TOLD:]))
        self.go_on()

    def _give_up(self, preparation: HostPreload, why: str) -> None:
        # Where the library is broken, its engine will say so with the attempt that needs it.
        self._failed.add(preparation)
        _log.warning("no host is prepared for %s any more: %s", preparation.name, why)

    def _forget(self, preparation: HostPreload) -> None:
        del self._asked[preparation]
        if preparation in self._hosts:
            self._end(preparation)

    def _end(self, preparation: HostPreload) -> None:
        self._do(self._drop(preparation).process.end())

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _drop(self, preparation: HostPreload) -> StandbyHost:
        host = self._hosts.pop(preparation)
        if host.reservation is not None:
            self._budget.release(host.reservation)
        return host


def _unheard(_: str) -> None:
    """What a library prints while it is imported is nobody's; the last lines are kept."""
