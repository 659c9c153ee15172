"""The frames of one call's answer, between its link and the coroutine that passes them on."""

import asyncio
from collections import deque

from flowmesh_core.protocol.serving import CallEnded, CallRefused, Piece

Reply = Piece | CallEnded | CallRefused


class ReplyQueue:
    """Frames in order, for one reader.

    ``asyncio.Queue`` would do: this one creates a third of the objects, and pieces that wait
    together are read as one.
    """

    __slots__ = ("_replies", "_waiter")

    def __init__(self) -> None:
        self._replies: deque[Reply] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, reply: Reply) -> None:
        """Adds a frame."""
        self._replies.append(reply)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def get(self) -> Reply:
        """Returns the next frame; pieces that follow one another are joined."""
        while not self._replies:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        reply = self._replies.popleft()
        if not isinstance(reply, Piece) or not self._replies:
            return reply
        data = [reply.data]
        while self._replies and isinstance(following := self._replies[0], Piece):
            data.append(following.data)
            self._replies.popleft()
        return Piece(reply.call_id, b"".join(data))
