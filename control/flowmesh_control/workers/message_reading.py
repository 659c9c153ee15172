"""Decodes workers' messages, within the limits of ``protocol.frames``."""

import asyncio
from dataclasses import dataclass

import msgspec
from aiohttp import WSCloseCode, WSMessage, WSMsgType
from aiohttp.http_websocket import WebSocketError

from flowmesh_control.workers.join_checks import REASON_CHARS
from flowmesh_control.workers.message_intake import DropReason
from flowmesh_core.protocol.frames import COUNT_FROM_BYTES, MESSAGE_BYTES_MAX, VALUES_MAX, fits
from flowmesh_core.protocol.messages import WorkerMessage, decode_worker

_TOO_LARGE = f"it has more than {MESSAGE_BYTES_MAX:,} bytes or {VALUES_MAX:,} values"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A message that is not decoded, and why."""

    reason: DropReason
    text: str


async def read_message(message: WSMessage) -> WorkerMessage | Unreadable:
    """Returns a worker's message; the values of a large one are counted in a thread."""
    if message.type is not WSMsgType.BINARY:
        error = message.data if message.type is WSMsgType.ERROR else None
        if isinstance(error, WebSocketError) and error.code == WSCloseCode.MESSAGE_TOO_BIG:
            return Unreadable(DropReason.TOO_LARGE, _TOO_LARGE)
        return Unreadable(DropReason.UNREADABLE, "it is not binary")
    data: bytes = message.data
    if len(data) >= COUNT_FROM_BYTES and not await asyncio.to_thread(fits, data):
        return Unreadable(DropReason.TOO_LARGE, _TOO_LARGE)
    try:
        return decode_worker(data)
    except msgspec.DecodeError as e:
        return Unreadable(DropReason.UNREADABLE, str(e)[:REASON_CHARS])
