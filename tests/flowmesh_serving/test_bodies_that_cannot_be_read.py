"""Bodies that are not what their headers say: the client's mistake, and not worth a log line."""

import logging
from pathlib import Path

import pytest
from tests.flowmesh_serving.raw_http import chat, connected, head, request
from tests.flowmesh_serving.stack import Stack, echo_stack

CODINGS = ("gzip", "deflate", "br", "zstd")


async def error_of(stack: Stack, data: bytes) -> tuple[int, str]:
    async with connected(stack) as peer:
        peer.send(data)
        answer = await peer.answer()
        return answer.status, answer.error["code"]


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_a_body_that_is_not_encoded_as_it_says_is_invalid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, coding: str, path: str
) -> None:
    async with echo_stack(tmp_path) as stack:
        body = chat("one")
        data = head(len(body), path=path, more=f"Content-Encoding: {coding}") + body
        status, code = await error_of(stack, data)
        assert (status, code) == (400, "invalid_http")
        async with connected(stack) as peer:  # the router goes on
            peer.send(request(chat("one")))
            assert (await peer.answer()).status == 200
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    "chunk", [b"zz\r\n", b"-1\r\n", b"5\r\nabcdeXX", b"ffffffffffffffffff\r\n"]
)
async def test_a_chunk_that_is_none_is_invalid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, chunk: bytes
) -> None:
    async with echo_stack(tmp_path) as stack:
        status, code = await error_of(stack, head(None) + chunk)
        assert (status, code) == (400, "invalid_http")
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
