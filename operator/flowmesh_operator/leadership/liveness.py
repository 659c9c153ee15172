"""The liveness endpoint, served in the watches' event loop: it answers while that loop runs.

It replaces kopf's own endpoint, which has no deadlines: a pod of the cluster could occupy all its
connections, and the kubelet's probe would fail.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from flowmesh_control.api.connections import TimedRunner

_SHUTDOWN_S = 1.0


@asynccontextmanager
async def alive_at(port: int, host: str = "0.0.0.0") -> AsyncIterator[TimedRunner | None]:
    """Answers ``GET /healthz`` while the block runs.

    Args:
        port: the port to listen on; 0 for no endpoint.
        host: the address; the kubelet's probe comes from outside of the pod.

    Raises:
        OSError: the port is taken.
    """
    if not port:
        yield None
        return
    app = web.Application()
    app.router.add_get("/healthz", _healthy)
    runner = TimedRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield runner
    finally:
        await runner.cleanup()


async def _healthy(_: web.Request) -> web.Response:
    return web.json_response({})
