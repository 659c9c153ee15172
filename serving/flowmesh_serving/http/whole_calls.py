"""OpenAI's endpoints for requests that came whole and want no stream.

Each has a task, which waits for its answer, and nothing of aiohttp: no request, response or writer.
"""

import asyncio
import logging
from functools import partial
from typing import Any

import msgspec
from aiohttp.http import RawRequestMessage

from flowmesh_core.decoding import decode
from flowmesh_core.openai.request import ENDPOINTS
from flowmesh_serving.errors import internal_error
from flowmesh_serving.http.openai import OpenAiEndpoints
from flowmesh_serving.http.whole_requests import WholeRequest
from flowmesh_serving.http.whole_response import WholeResponse, refusal_of

_log = logging.getLogger(__name__)


class WholeCalls:
    """The ``WholeRequestHandler`` of OpenAI's endpoints."""

    def __init__(self, endpoints: OpenAiEndpoints) -> None:
        self._endpoints = endpoints

    def takes(self, message: RawRequestMessage, size: int) -> bool:
        """See ``WholeRequestHandler.takes``."""
        del size
        return message.path in ENDPOINTS and message.method == "POST"

    def begin(self, request: WholeRequest) -> bool:
        """See ``WholeRequestHandler.begin``."""
        if _wants_stream(request.body) or not self._endpoints.knows(request.headers):
            return False
        task = asyncio.get_running_loop().create_task(self._answer(request))
        request.on_gone = task.cancel
        task.add_done_callback(partial(_let_go, request))
        return True

    async def _answer(self, request: WholeRequest) -> None:
        try:
            found = await self._endpoints.respond(request, None)
        except Exception:
            _log.exception("a request failed")
            found = refusal_of(internal_error())
        assert isinstance(found, WholeResponse)
        request.answer(found)


def _let_go(request: WholeRequest, _: asyncio.Task[None]) -> None:
    """Parts a request from its task: one that was cancelled keeps its frames, and so the body."""
    request.on_gone = None


class _StreamField(msgspec.Struct):
    stream: Any = False


_stream_fields = msgspec.json.Decoder(_StreamField)


def _wants_stream(body: bytes) -> bool:
    try:
        return bool(decode(_stream_fields, body).stream)
    except msgspec.DecodeError:
        return False  # whatever is wrong is said later
