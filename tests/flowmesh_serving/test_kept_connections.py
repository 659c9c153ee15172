"""The client of the tests that kill processes sees a reply that is sent twice."""

import asyncio

from tests.flowmesh_serving.kept_connections import KeptConnections

REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"


async def asked(replies: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Returns what a server's replies are taken for, and what is left over."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for reply in replies:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(reply)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()[:2]
        connections = KeptConnections()
        found = [await connections.post(f"http://{host}:{port}", "/", b"", {}) for _ in replies]
        await connections.close()
    return [data for _, data in found], connections.left_over


async def test_each_request_has_its_own_answer_on_one_connection() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbc\r\n0\r\n\r\n"
    assert await asked([REPLY + b"a", chunked, REPLY + b"d"]) == ([b"a", b"bc", b"d"], [])


async def test_a_reply_that_is_sent_twice_is_seen() -> None:
    twice = 2 * (REPLY + b"a")
    assert await asked([twice, REPLY + b"b"]) == ([b"a", b"a"], [REPLY + b"b"])
    assert await asked([twice]) == ([b"a"], [REPLY + b"a"])
