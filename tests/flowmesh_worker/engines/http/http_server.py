"""A local HTTP server with scripted answers that records its requests."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_core.identity.coerce import effective_params
from flowmesh_store.datasets.chunks import as_single_chunk
from flowmesh_worker.engine_api import DatasetInput, Rows, Work
from flowmesh_worker.secret_values import SecretValues

Respond = Callable[["Seen"], web.Response]


@dataclass
class Seen:
    """A request, and the number of earlier requests to its path."""

    method: str
    path: str
    headers: dict[str, str]
    text: str
    before: int
    query: dict[str, str] = field(default_factory=dict)


class Site:
    """Answers by path; ``seen`` has all requests in order."""

    def __init__(self, paths: dict[str, Respond]) -> None:
        self.paths = paths
        self.seen: list[Seen] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        before = sum(s.path == request.path for s in self.seen)
        headers = {k.title(): v for k, v in request.headers.items()}
        text = await request.text()
        seen = Seen(request.method, request.path, headers, text, before, dict(request.query))
        self.seen.append(seen)
        if request.path == "/dies":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return self.paths[request.path](seen)


@asynccontextmanager
async def serving(paths: dict[str, Respond]) -> AsyncIterator[Site]:
    site = Site(paths)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", site.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    site.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield site
    finally:
        await runner.cleanup()


async def rows_of(
    engine: Any, name: str, rows: list[dict[str, Any]], secrets: Any = None, **params: Any
) -> list[dict[str, Any]]:
    """Runs an engine on rows, with parameters converted as by the compiler."""
    contract = builtin_catalog().newest(name)
    assert contract is not None
    manifest, blobs = as_single_chunk(rows)
    given = DatasetInput(manifest, tuple(blobs[c.blob] for c in manifest.chunks))
    typed = effective_params(contract, params)
    if not isinstance(secrets, SecretValues):
        secrets = SecretValues.for_any_host(secrets or {})
    work = Work("action", "attempt", typed, {}, {"rows": given}, Path("unused"), secrets=secrets)
    try:
        result = await engine.run(work, lambda *_: None)
    finally:
        await engine.close()
    made = result.outputs["rows"]
    assert isinstance(made, Rows)
    as_single_chunk(made.rows, made.schema)  # what cannot be stored is no answer
    return [dict(r) for r in made.rows]
