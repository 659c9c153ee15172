"""Attacker: T2, a tenant with a service token, or a peer without one, over a raw socket.
Action: sends broken JSON, odd numbers, deep nesting, unknown parameters, and floods of headers.
Must not happen: an answer that is not OpenAI's error, an engine that sees it, or another delayed.
"""

import json
import zlib
from pathlib import Path

import pytest
from tests.flowmesh_serving.raw_http import chat, connected, head, request
from tests.flowmesh_serving.stack import MODEL, ask, echo_stack

NESTED = b"[" * 100_000 + b"]" * 100_000


def with_value(name: str, value: bytes) -> bytes:
    """The body of a chat with one more member, as bytes that no encoder makes."""
    return chat("one")[:-1] + b', "' + name.encode() + b'": ' + value + b"}"


BODIES = {
    "empty": (b"", 400, "invalid_json"),
    "cut off": (chat("one")[:-1], 400, "invalid_json"),
    "a list": (b"[]", 400, "invalid_json"),
    "no utf-8": (b'{"model": "\xff\xfe"}', 400, "invalid_json"),
    "lone surrogate": (with_value("user", rb'"\ud800"'), 400, None),
    "nested": (b'{"messages": ' + NESTED + b"}", 400, "invalid_json"),
    "nested in a schema": (with_value("response_format", NESTED), 400, "invalid_json"),
    "NaN": (with_value("temperature", b"NaN"), 400, "invalid_json"),
    "infinity": (with_value("temperature", b"1e999"), 400, "invalid_json"),
    "huge integer": (with_value("seed", b"9" * 4000), 400, None),
    "huger integer": (with_value("seed", b"9" * 100_000), 400, None),
    "seed beyond 64 bits": (with_value("seed", b"36893488147419103232"), 400, None),
    "duplicate keys": (with_value("model", b'"other"'), 404, "model_not_found"),  # the last holds
    "unknown parameter": (with_value("priority", b"9"), 400, "unknown_parameter"),
    "engine's parameter": (with_value("cache_salt", b'"x"'), 400, "unknown_parameter"),
    "boolean as number": (with_value("n", b"true"), 400, "invalid_type"),
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_malformed_body_is_openais_error_and_reaches_no_engine(
    tmp_path: Path, name: str
) -> None:
    body, status, code = BODIES[name]
    async with echo_stack(tmp_path) as stack, connected(stack) as peer, stack.client as client:
        peer.send(request(body))
        answer = await peer.answer()
        assert (answer.status, answer.error["type"]) == (status, "invalid_request_error"), answer
        assert code is None or answer.error["code"] == code
        assert not any(usage.tokens for usage in stack.usage)
        peer.send(request(chat("one")))  # the same connection goes on
        assert (await peer.answer()).status == 200
        assert (await ask(client, "two")).choices[0].message.content == "two"


HEADS = {
    "no http": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n",
    "a long header": head(0, more="X-A: " + "a" * 20_000),
    "very many headers": head(0, more="\r\n".join(f"X-{n}: a" for n in range(2000))),
    "a long path": head(0, path="/v1/" + "a" * 20_000),
    "two lengths": head(3, more="Content-Length: 9") + b"abc",
    "length and chunks": head(3, more="Transfer-Encoding: chunked") + b"abc",
    "a negative length": head(-1),
}


@pytest.mark.parametrize("name", HEADS)
async def test_a_malformed_head_is_openais_error_and_closes_its_connection_only(
    tmp_path: Path, name: str
) -> None:
    async with echo_stack(tmp_path) as stack, connected(stack) as peer, stack.client as client:
        peer.send(HEADS[name])
        answer = await peer.answer()
        assert (answer.status, answer.error["code"]) == (400, "invalid_http")
        assert await peer.until_closed() == b""
        assert (await ask(client, "two")).choices[0].message.content == "two"


async def test_headers_and_paths_that_are_no_text_are_refused_as_others_are(tmp_path: Path) -> None:
    odd = b"\xff\xfe"
    token = head(0).replace(b"fm-token-of-team-a", odd)
    key = request(chat("one"), more="Idempotency-Key: KEY").replace(b"KEY", odd)
    model = head(0, path="/v1/models/ODD").replace(b"POST", b"GET").replace(b"ODD", odd)
    path = head(0, path="/v1/ODD").replace(b"POST", b"GET").replace(b"ODD", odd)
    cases = ((token, {401}), (key, {200}), (model, {400, 404}), (path, {400, 404}))
    async with echo_stack(tmp_path) as stack:
        for data, statuses in cases:
            async with connected(stack) as peer:
                peer.send(data)
                answer = await peer.answer()
                assert answer.status in statuses, (data, answer)
                assert answer.status == 200 or answer.error["message"]


@pytest.mark.parametrize(
    "token", ["", "wrong", "fm-" + "a" * 4000, "\xff\xfe", "x y", "Bearer fm-token-of-team-a"]
)
async def test_a_wrong_token_is_refused_before_its_body_is_read(tmp_path: Path, token: str) -> None:
    async with echo_stack(tmp_path) as stack, connected(stack) as peer:
        peer.send(head(1000, token=token))  # no byte of the body follows
        answer = await peer.answer()
        assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
        assert MODEL not in json.dumps(answer.body)
        async with connected(stack) as own:
            own.send(request(chat("one")))
            assert (await own.answer()).status == 200


@pytest.mark.parametrize("length", [2001, None], ids=["announced", "chunked"])
async def test_a_body_over_the_limit_is_refused_before_it_has_been_read(
    tmp_path: Path, length: int | None
) -> None:
    async with (
        echo_stack(tmp_path, body_bytes_max=2000) as stack,
        connected(stack) as peer,
    ):
        peer.send(head(length))
        if length is None:
            peer.send(b"7d1\r\n" + b" " * 2001 + b"\r\n")  # and no end
        answer = await peer.answer()
        assert (answer.status, answer.error["code"]) == (413, "request_too_large")
        assert stack.router._calls.in_flight == 0
        async with connected(stack) as own:
            own.send(request(chat("one")))
            assert (await own.answer()).status == 200


async def test_a_compressed_bomb_is_bounded_by_what_it_unpacks_to(tmp_path: Path) -> None:
    bomb = zlib.compress(b" " * (64 << 20), 9)
    assert len(bomb) < 100_000
    async with echo_stack(tmp_path) as stack, connected(stack) as peer, stack.client as client:
        peer.send(request(bomb, more="Content-Encoding: deflate"))
        answer = await peer.answer()
        assert (answer.status, answer.error["code"]) == (413, "request_too_large")
        assert (await ask(client, "two")).choices[0].message.content == "two"
