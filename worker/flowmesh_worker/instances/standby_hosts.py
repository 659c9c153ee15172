"""Starts, gives away and ends the processes of standby hosts.

The shell calls it with the worker agent's instructions; the answers are events.
"""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent.instructions import StartStandby
from flowmesh_worker.engines.preload import HostPreload
from flowmesh_worker.instances.host_process import HostProcess, host_environment
from flowmesh_worker.instances.scratch import Scratch
from flowmesh_worker.ipc.frames import FromHost, Prepare, Prepared

_LINES_LOGGED = 3
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class StandbyProcess:
    """The process of one standby host.

    Attributes:
        preload: what it imports.
        folder: the directory that it may write into; an engine instance takes it over.
    """

    host_id: int
    preload: HostPreload
    folder: Path
    process: HostProcess
    ready: bool = False


class StandbyProcesses:
    """All standby hosts of a worker."""

    def __init__(
        self,
        cpus: int,
        scratch: Scratch,
        post: Callable[[e.Event], None],
        preload: Callable[[str], HostPreload],
        *,
        on_devices: bool,
    ) -> None:
        """Starts none.

        Args:
            cpus: CPU threads of the worker.
            scratch: where hosts write.
            post: hands events to the agent.
            preload: returns what a host imports, by name.
            on_devices: whether the engines use devices.
        """
        self._cpus = cpus
        self._scratch = scratch
        self._post = post
        self._preload = preload
        self._on_devices = on_devices
        self._hosts: dict[int, StandbyProcess] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def by_preload(self) -> dict[HostPreload, StandbyProcess]:
        """Returns the hosts by what they import."""
        return {host.preload: host for host in self._hosts.values()}

    def start(self, instruction: StartStandby) -> None:
        """Starts a process that imports libraries."""
        number, preload = instruction.host_id, self._preload(instruction.preload)
        try:
            folder = self._scratch.new_host_folder()
        except OSError as error:
            self._give_up(preload, str(error))
            self._post(e.StandbyExited(number))
            return
        process = HostProcess(
            partial(self._received, number), _ignore, partial(self._exited, number)
        )
        self._hosts[number] = StandbyProcess(number, preload, folder, process)
        self._do(self._start_process(self._hosts[number]))

    def take(self, host_id: int) -> StandbyProcess | None:
        """Removes and returns a process; None if it is gone."""
        return self._hosts.pop(host_id, None)

    def stop(self, host_id: int) -> None:
        """Kills a process; does nothing if it is gone."""
        host = self._hosts.pop(host_id, None)
        if host is not None:
            self._do(self._end(host))

    async def close(self) -> None:
        """Kills all processes and waits until they are gone."""
        for number in list(self._hosts):
            self.stop(number)
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _start_process(self, host: StandbyProcess) -> None:
        environment = host_environment(os.environ, self._cpus)
        try:
            await host.process.start({**environment, "TMPDIR": str(host.folder)})
        except OSError as error:
            self._remove(host.host_id, str(error))
            return
        host.process.send(Prepare(host.preload.modules, self._cpus, self._on_devices))

    @staticmethod
    async def _end(host: StandbyProcess) -> None:
        await host.process.end()
        shutil.rmtree(host.folder, ignore_errors=True)

    def _received(self, host_id: int, message: FromHost) -> None:
        host = self._hosts.get(host_id)
        if host is None or not isinstance(message, Prepared):
            return
        if message.error:
            self._remove(host_id, message.error)
        else:
            host.ready = True
            self._post(e.StandbyReady(host_id))

    def _exited(self, host_id: int, code: int) -> None:
        self._remove(host_id, f"exit code {code}")

    def _remove(self, host_id: int, reason: str) -> None:
        host = self._hosts.pop(host_id, None)
        if host is None:
            return
        if not host.ready:
            self._give_up(host.preload, "; ".join([*host.process.log, reason][-_LINES_LOGGED:]))
        self._do(self._end(host))
        self._post(e.StandbyExited(host_id))

    @staticmethod
    def _give_up(preload: HostPreload, reason: str) -> None:
        _log.warning("no further standby host is started for %s: %s", preload.name, reason)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _ignore(_: str) -> None:
    """Drops a line that a library printed while it was imported; the process has the last ones."""
