"""What a worker makes of servers that answer ranges of bytes in other ways than S3 does."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.blob_views import SCOPE

from flowmesh_core.errors import BlobCorruptError, StoreError, StoreUnavailableError
from flowmesh_store.blob_service.access import SignedAccess
from flowmesh_store.blob_service.blobs import ServiceBlobs
from flowmesh_store.hashing import digest_of
from flowmesh_store.ordered_pieces import PIECE_BYTES, PIECES_AT_ONCE
from flowmesh_store.signed_objects import SignedObjects

if TYPE_CHECKING:
    from flowmesh_store.blob_service.client import BlobServiceClient

CONTENT = os.urandom(3 * PIECE_BYTES + 5)
Answer = Callable[[web.Request, int, int], Awaitable[web.StreamResponse]]


class Service:
    """Gives one URL for everything."""

    url = "http://service"

    def __init__(self, url: str) -> None:
        self._url = url

    async def presigned_url(self, *_: object) -> str:
        return self._url


def partial(start: int, data: bytes, size: object = len(CONTENT)) -> web.Response:
    span = f"bytes {start}-{start + len(data) - 1}/{size}"
    return web.Response(status=206, body=data, headers={"Content-Range": span})


async def fetched(answer: Answer, target: Path) -> tuple[int, asyncio.Semaphore]:
    async def get(request: web.Request) -> web.StreamResponse:
        span = request.http_range
        assert span.start is not None
        assert span.stop is not None
        return await answer(request, span.start, min(span.stop, len(CONTENT)))

    app = web.Application()
    app.router.add_get("/object", get)
    async with TestServer(app) as server, aiohttp.ClientSession() as http:
        service = cast("BlobServiceClient", Service(str(server.make_url("/object"))))
        access = SignedAccess(service, SignedObjects(http), no_pause)
        try:
            async with asyncio.timeout(20):
                size = await ServiceBlobs(access, SCOPE, "token").fetch(digest_of(CONTENT), target)
        finally:
            for _ in range(PIECES_AT_ONCE):
                assert not access.pieces.locked(), "a place was kept"
                await access.pieces.acquire()
        return size, access.pieces


async def no_pause(_: float) -> None:
    """Tries again at once."""


@pytest.mark.parametrize("size", ["*", "", "-7", "many"])
async def test_a_range_of_an_object_of_unknown_size_is_an_error_of_the_store(
    tmp_path: Path, size: str
) -> None:
    async def answer(_: web.Request, start: int, stop: int) -> web.StreamResponse:
        return partial(start, CONTENT[start:stop], size)

    with pytest.raises(StoreError, match="how large"):
        await fetched(answer, tmp_path / "target")
    assert os.listdir(tmp_path) == []


async def test_a_range_without_bytes_is_an_error_of_the_store(tmp_path: Path) -> None:
    async def answer(_: web.Request, start: int, stop: int) -> web.StreamResponse:
        span = f"bytes {start}-{stop - 1}/{len(CONTENT)}"
        return web.Response(status=206, headers={"Content-Range": span})

    with pytest.raises(StoreUnavailableError):
        await fetched(answer, tmp_path / "target")
    assert os.listdir(tmp_path) == []


async def test_a_piece_that_is_answered_with_everything_is_not_read_into_memory(
    tmp_path: Path,
) -> None:
    sent = 0

    async def endless(request: web.Request) -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += PIECE_BYTES
            yield bytes(PIECE_BYTES)

    async def answer(request: web.Request, start: int, stop: int) -> web.StreamResponse:
        if not start:
            return partial(start, CONTENT[start:stop])
        response = web.StreamResponse()
        await response.prepare(request)
        async for data in endless(request):
            await response.write(data)
        return response

    with pytest.raises(StoreUnavailableError):
        await fetched(answer, tmp_path / "target")
    assert os.listdir(tmp_path) == []
    assert sent < 40 * PIECE_BYTES


async def _shifted(_: web.Request, start: int, stop: int) -> web.StreamResponse:
    shift = 1 if start else 0
    return partial(start, CONTENT[start - shift : stop - shift])


async def _short(_: web.Request, start: int, stop: int) -> web.StreamResponse:
    return partial(start, CONTENT[start : stop - 1 if start else stop])


async def _long(_: web.Request, start: int, stop: int) -> web.StreamResponse:
    return partial(start, CONTENT[start : stop + 1 if start else stop])


async def _cut(request: web.Request, start: int, stop: int) -> web.StreamResponse:
    if not start:
        return partial(start, CONTENT[start:stop])
    headers = {"Content-Range": f"bytes {start}-{stop - 1}/{len(CONTENT)}"}
    response = web.StreamResponse(status=206, headers=headers)
    response.content_length = stop - start
    await response.prepare(request)
    await response.write(CONTENT[start : start + 9])
    assert request.transport is not None
    request.transport.close()
    return response


async def _shrunk(_: web.Request, start: int, stop: int) -> web.StreamResponse:
    return web.Response(status=416) if start else partial(start, CONTENT[start:stop])


async def _grown(_: web.Request, start: int, stop: int) -> web.StreamResponse:
    return partial(start, CONTENT[start:stop], len(CONTENT) + start)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (_shifted, BlobCorruptError),
        (_short, StoreUnavailableError),
        (_long, StoreUnavailableError),
        (_cut, StoreUnavailableError),
        (_shrunk, StoreUnavailableError),
        (_grown, None),
    ],
)
async def test_pieces_of_a_server_that_errs_leave_no_file_and_no_place(
    tmp_path: Path, answer: Answer, error: Any
) -> None:
    if error is None:
        assert (await fetched(answer, tmp_path / "target"))[0] == len(CONTENT)
        return
    with pytest.raises(error):
        await fetched(answer, tmp_path / "target")
    assert os.listdir(tmp_path) == []
