"""The worker agent's end of the hub: starts its process and passes replicas and routers to it.

It implements ``ServingHub``, the port of the agent's shell, and posts what the hub reports.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowmesh_core.protocol.messages import RouterAddress, ServingReplica
from flowmesh_core.worker_agent import events as e
from flowmesh_worker.ipc.channel import Channel
from flowmesh_worker.ipc.hub_frames import (
    AdmitReplica,
    CloseHub,
    FromHub,
    HubStarted,
    ReplicaUsage,
    RouterTls,
    ToHub,
    UseRouters,
    WithdrawReplica,
)

_CLOSE_WITHIN_S = 5.0
_WITHHELD = ("FLOWMESH_WORKER_TOKEN", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


@dataclass(slots=True)
class _Usage:
    """The work of a replica in one engine instance, over all hubs that it had.

    Attributes:
        before: of earlier hubs, ``now`` of this one; ``before_s`` and ``now_s`` the seconds of it.
    """

    instance_id: int
    before: int = 0
    now: int = 0
    before_s: float = 0.0
    now_s: float = 0.0

    @property
    def units(self) -> int:
        return self.before + self.now

    @property
    def call_s(self) -> float:
        return self.before_s + self.now_s


class HubProcess:
    """The hub of one worker; at most one process at a time."""

    def __init__(self, worker: str, post: Callable[[e.Event], None], peer_port: int = 0) -> None:
        """Starts nothing.

        Args:
            worker: the worker's name.
            post: passes events to the agent.
            peer_port: where the hub takes values of hubs of other machines; 0 for nowhere.
        """
        self._peer_port = peer_port
        self._worker = worker
        self._post = post
        self._hub_id = 0
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel[FromHub] | None = None
        self._unsent: list[ToHub] = []
        self._usage: dict[str, _Usage] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def pid(self) -> int:
        """The process id; 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    def start(self, hub_id: int, routers: tuple[RouterAddress, ...]) -> None:
        """See ``ServingHub.start``."""
        if hub_id != self._hub_id:
            self._hub_id, self._unsent = hub_id, []
            for usage in self._usage.values():
                usage.before, usage.before_s = usage.units, usage.call_s
                usage.now, usage.now_s = 0, 0.0
            self._do(self._run(hub_id))
        tls = {
            r.address: RouterTls(r.ca, r.certificate, r.key, r.authorities, r.group)
            for r in routers
            if r.certificate
        }
        addresses = tuple(router.address for router in routers)
        self._send(UseRouters(addresses, tls, self._peer_port))

    def stop(self, hub_id: int) -> None:
        """See ``ServingHub.stop``."""
        if hub_id == self._hub_id:
            self._hub_id = 0
            self._usage.clear()
            self._do(self._end())

    def admit(
        self, instance_id: int, calls_socket: Path, replica: ServingReplica, halvings: int = 0
    ) -> None:
        """See ``ServingHub.admit``."""
        known = self._usage.get(replica.replica_id)
        if known is None or known.instance_id != instance_id:
            self._usage[replica.replica_id] = _Usage(instance_id)
        self._send(
            AdmitReplica(
                replica.replica_id,
                replica.service,
                str(calls_socket),
                replica.calls_max,
                replica.salts,
                halvings,
                replica.component,
                replica.timings,
                replica.ttft_s,
                replica.tpot_s,
            )
        )

    def withdraw(self, replica_id: str) -> None:
        """See ``ServingHub.withdraw``."""
        self._send(WithdrawReplica(replica_id))

    async def close(self) -> None:
        """Ends the process, and waits until it is gone."""
        self._hub_id = 0
        await self._end()

    def _send(self, message: ToHub) -> None:
        if self._channel is not None:
            self._channel.send(message)
        else:
            self._unsent.append(message)

    async def _run(self, hub_id: int) -> None:
        """Runs one process from its start to its end."""
        await self._end()  # of the one before
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            process = await self._spawn(theirs)
        except OSError as error:
            ours.close()
            self._post(e.HubExited(hub_id, f"the hub did not start: {error}"))
            return
        finally:
            theirs.close()
        self._process = process
        channel = await Channel[FromHub].over(ours, FromHub, self._receive, lambda: None)
        if hub_id == self._hub_id:
            self._channel = channel
            for message in self._unsent:
                channel.send(message)
            self._unsent = []
        code = await process.wait()
        channel.close()
        if self._channel is channel:
            self._channel = None
        if self._process is process:
            self._process = None
        if hub_id == self._hub_id:
            self._post(e.HubExited(hub_id, f"the hub {_how(code)}"))

    async def _spawn(self, theirs: socket.socket) -> asyncio.subprocess.Process:
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in _WITHHELD and not name.startswith("AWS_")
        }
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "flowmesh_worker.serving.hub",
            str(theirs.fileno()),
            str(os.getpid()),
            self._worker,
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            env=environment,
            start_new_session=True,
        )

    async def _end(self) -> None:
        process, channel = self._process, self._channel
        self._channel = None
        if process is None:
            return
        if channel is not None:
            channel.send(CloseHub())
        try:
            async with asyncio.timeout(_CLOSE_WITHIN_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def _receive(self, message: FromHub) -> None:
        match message:
            case HubStarted():
                self._post(e.HubReady(self._hub_id))
            case ReplicaUsage(replica_id, calls, tokens, call_s):
                usage = self._usage.get(replica_id)
                if usage is not None:
                    usage.now, usage.now_s = tokens, call_s
                    self._post(e.CallsBusy(replica_id, calls, usage.units, usage.call_s))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _how(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
