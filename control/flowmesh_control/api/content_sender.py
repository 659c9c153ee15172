"""Sends content to clients: a bounded number of downloads at once, each to a client that reads.

A download holds a part of its content in memory, or on disk, until its client has taken it. A
connection on which a valid token was shown does not count as one of its peer, so these do.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator

from aiohttp import web

from flowmesh_control.api.authorization import AuthorizedRequest
from flowmesh_control.api.connections import while_connected
from flowmesh_control.evaluators.fair_places import FairPlaces
from flowmesh_control.queries.downloads import Download
from flowmesh_core.errors import FlowMeshError

log = logging.getLogger("flowmesh.control.api")

AT_ONCE, OF_ONE = 64, 16
"""Downloads at once: of all namespaces, and of one; others wait."""
PIECE_BYTES = 1 << 20
TAKEN_WITHIN_S = 60.0
"""How long a client may take for a piece: it reads at least 17 kB/s."""


class ContentSender:
    """Sends downloads."""

    def __init__(self) -> None:
        """Sends nothing yet."""
        self._places = FairPlaces(AT_ONCE, OF_ONE)

    def place(self, call: AuthorizedRequest) -> contextlib.AbstractAsyncContextManager[None]:
        """Returns a context that waits for a place, and occupies it."""
        return self._places.place(call.namespace)

    async def send(self, call: AuthorizedRequest, download: Download) -> web.StreamResponse:
        """Sends a download when it has a place.

        Raises:
            ConnectionResetError: the client has disconnected.
            FlowMeshError: the content cannot be read, and nothing of it was sent. If a part was,
                the connection is broken off, so that the client does not take it for all.
        """
        return await while_connected(call.request, self._send(call, download))

    async def _send(self, call: AuthorizedRequest, download: Download) -> web.StreamResponse:
        async with self.place(call), contextlib.aclosing(_parts(download)) as parts:
            first = await anext(parts, b"")
            response = web.StreamResponse(headers={"Content-Type": download.media_type})
            await response.prepare(call.request)
            try:
                await _write(response, first)
                async for part in parts:
                    await _write(response, part)
            except (TimeoutError, FlowMeshError) as e:
                log.warning("%s %s broke off: %s", call.request.method, call.request.path, e)
                if call.request.transport is not None:
                    call.request.transport.abort()
                return response
            await response.write_eof()
            return response


async def _write(response: web.StreamResponse, part: bytes) -> None:
    async with asyncio.timeout(TAKEN_WITHIN_S):
        await response.write(part)


async def _parts(download: Download) -> AsyncGenerator[bytes, None]:
    """Yields the content in parts that a slow client can take in time."""
    async for piece in download.pieces:
        for start in range(0, max(1, len(piece)), PIECE_BYTES):
            yield piece[start : start + PIECE_BYTES] if len(piece) > PIECE_BYTES else piece
