"""``python -m flowmesh_worker.host FD PARENT BEAT_FD BEAT_S``: the agent starts it."""

import asyncio
import gc
import os
import signal
import socket
import sys

from flowmesh_worker.host.server import HostServer
from flowmesh_worker.ipc.heartbeat import start_heartbeat
from flowmesh_worker.ipc.parent_death import die_with_parent


def main() -> None:
    """Serves the agent that holds the other end of the socket."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent)
    start_heartbeat(int(sys.argv[3]), float(sys.argv[4]))
    # Ctrl-C goes to the agent, which decides what its hosts finish.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=descriptor)
    connection.setblocking(False)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    gc.freeze()  # what was imported stays: the collector need not look at it
    asyncio.run(HostServer(connection).serve())
    sys.stdout.flush()
    # Libraries leave threads behind that never end; everything that matters is closed by now.
    os._exit(0)


if __name__ == "__main__":
    main()
