"""The hub's process, ``python -m flowmesh_worker.serving.hub FD PARENT WORKER``.

Started by the worker agent, which holds the other end of the socket ``FD``. It is a process of its
own so that fetching and hashing for attempts does not delay calls. It dials routers and hosts;
only other hubs dial it, where its pool allows that.
"""

import asyncio
import logging
import os
import resource
import signal
import socket
import sys

from flowmesh_core.gc_of_servers import collect_rarely
from flowmesh_worker.ipc.channel import Channel
from flowmesh_worker.ipc.hub_frames import (
    AdmitReplica,
    CloseHub,
    FromHub,
    HubStarted,
    ToHub,
    UseRouters,
    WithdrawReplica,
)
from flowmesh_worker.ipc.parent_death import die_with_parent
from flowmesh_worker.serving.service_hub import ServiceHub


class HubServer:
    """The hub's process: performs what the agent sends."""

    def __init__(self, connection: socket.socket, worker: str) -> None:
        self._connection = connection
        self._closed = asyncio.Event()
        self._channel: Channel[ToHub] | None = None
        self._hub = ServiceHub(worker, self._send)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Serves until the agent closes the hub or is gone."""
        self._channel = await Channel[ToHub].over(
            self._connection, ToHub, self._receive, self._closed.set
        )
        self._send(HubStarted())
        await self._closed.wait()
        self._hub.close()
        self._channel.close()

    def _send(self, message: FromHub) -> None:
        if self._channel is not None:
            self._channel.send(message)

    def _receive(self, message: ToHub) -> None:
        match message:
            case UseRouters(addresses=addresses, tls=tls, peer_port=peer_port):
                self._hub.use_routers(addresses, tls, peer_port)
            case AdmitReplica():
                task = asyncio.get_running_loop().create_task(self._hub.admit(message))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case WithdrawReplica(replica_id=replica_id):
                self._hub.withdraw(replica_id)
            case CloseHub():
                self._closed.set()


def main() -> None:
    """Runs the hub until the agent closes it."""
    descriptor, parent, worker = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    die_with_parent(parent)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # values in memory are open files
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the agent decides when it ends
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    connection = socket.socket(fileno=descriptor)
    connection.setblocking(False)
    collect_rarely()
    asyncio.run(HubServer(connection, worker).serve())
    os._exit(0)


if __name__ == "__main__":
    main()
