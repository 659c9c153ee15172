"""The engine host's process: ``python -m flowmesh_worker.host FD PARENT BEAT_FD BEAT_S``.

Started by the worker agent only, which holds the other end of the socket ``FD``.
"""

import asyncio
import os
import signal
import socket
import sys

from flowmesh_core.gc_of_servers import collect_rarely
from flowmesh_worker.host.server import HostServer
from flowmesh_worker.ipc.heartbeat import start_heartbeat
from flowmesh_worker.ipc.parent_death import die_with_parent


def main() -> None:
    """Serves the agent at the other end of the socket until it closes the host."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent)
    start_heartbeat(int(sys.argv[3]), float(sys.argv[4]))
    # Ctrl-C reaches the whole process group; the agent decides what its hosts finish.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=descriptor)
    connection.setblocking(False)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    collect_rarely()
    asyncio.run(HostServer(connection).serve())
    sys.stdout.flush()
    # Libraries leave threads that never end and would block a normal exit; the engine is closed.
    os._exit(0)


if __name__ == "__main__":
    main()
