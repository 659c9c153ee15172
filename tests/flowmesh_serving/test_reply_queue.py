"""The frames of an answer: pieces that wait together are joined, and nothing is reordered."""

import asyncio

from flowmesh_core.protocol.serving import OK, CallEnded, Piece
from flowmesh_serving.calls.reply_queue import ReplyQueue

END = CallEnded("c", OK)


async def test_pieces_that_wait_together_are_read_as_one() -> None:
    replies = ReplyQueue()
    for data in (b"one ", b"two ", b"three"):
        replies.put(Piece("c", data))
    replies.put(END)
    assert await replies.get() == Piece("c", b"one two three")
    assert await replies.get() is END


async def test_a_frame_that_comes_later_wakes_the_reader() -> None:
    replies = ReplyQueue()
    reader = asyncio.ensure_future(replies.get())
    await asyncio.sleep(0)
    assert not reader.done()
    replies.put(Piece("c", b"one"))
    replies.put(END)
    assert await reader == Piece("c", b"one")
    assert await replies.get() is END


async def test_a_cancelled_reader_loses_nothing() -> None:
    replies = ReplyQueue()
    reader = asyncio.ensure_future(replies.get())
    await asyncio.sleep(0)
    reader.cancel()
    replies.put(END)
    await asyncio.wait([reader])
    assert reader.cancelled()
    assert await replies.get() is END
