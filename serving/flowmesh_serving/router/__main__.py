"""The router's process: ``python -m flowmesh_serving.router``.

Started by ``fmesh serve`` on a laptop, and by the chart's Deployment on a cluster. It has no key of
the control plane and no token of a worker, and runs no user code.
"""

import asyncio
import logging
import os
import resource
import signal
import sys
from dataclasses import replace

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.gc_of_servers import collect_rarely
from flowmesh_serving.call_spans import call_spans
from flowmesh_serving.router.server import RouterServer
from flowmesh_serving.router.settings import RouterSettings, parse_settings

_PARENT_POLL_S = 0.5
_OTHER_FILES = 256
"""Open files that are no connections of clients: links of hubs, the log, the loop's own."""


def main() -> None:
    """Routes until SIGTERM, SIGINT, or the end of its parent; exits with 1 if it cannot start."""
    settings = parse_settings(sys.argv[1:])
    settings = replace(settings, connections_max=_open_files(settings))
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    try:
        asyncio.run(_route(settings))
    except (FlowMeshError, OSError) as error:
        sys.stderr.write(f"router: {error}\n")
        sys.exit(1)


def _open_files(settings: RouterSettings) -> int:
    """Raises the limit of open files as far as it may be; returns how many connections fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard not in (resource.RLIM_INFINITY, soft):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if soft == resource.RLIM_INFINITY:
        return settings.connections_max
    return max(1, min(settings.connections_max, soft - _OTHER_FILES))


async def _route(settings: RouterSettings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    spans = call_spans(os.environ)
    server = RouterServer(settings, spans)
    await server.start()
    collect_rarely()
    if settings.ready_file is not None:
        new = settings.ready_file.with_suffix(".new")
        new.write_text(server.url)
        new.replace(settings.ready_file)
    try:
        while not stop.is_set() and settings.parent in (None, os.getppid()):
            try:
                async with asyncio.timeout(_PARENT_POLL_S):
                    await stop.wait()
            except TimeoutError:
                continue
    finally:
        await server.stop()
        if spans is not None:
            await asyncio.to_thread(spans.close)


if __name__ == "__main__":
    main()
