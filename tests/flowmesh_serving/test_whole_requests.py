"""Requests that come whole are answered as those whose bodies come later, in order, and end."""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_serving.hand_hub import HandHub, hand_hub
from tests.flowmesh_serving.raw_http import RawAnswer, chat, connected, head, request
from tests.flowmesh_serving.stack import TOKEN, Stack, echo_stack, router_of, until
from tests.flowmesh_serving.stage_stack import SERVICE, URL, entry_of, python, service_of

from flowmesh_core.protocol.router_services import RouterServices, ServiceToken, token_hash
from flowmesh_core.protocol.serving import EndRequest, ReplicaLoad, RunStages, StageValue
from flowmesh_serving.http.whole_invocations import WholeInvocations

SPEC: dict[str, Any] = {
    "components": {"only": python("def same(batch):\n    return batch", "same")},
    "stages": [{"name": "one", "component": "only", "inputs": {"q": "request.q"}}],
    "reply": {"out": "one"},
}
SCHEMA = {"type": "object", "properties": {"q": {"type": "string", "maxLength": 5}}}
REPLICA = ReplicaLoad(f"{SERVICE}/only/r1/w", SERVICE, (), 8, component="only")


@dataclass
class Served:
    """A router whose only hub a test plays."""

    stack: Stack
    hub: HandHub

    async def asked(self, kind: type[Any] = RunStages) -> Any:
        """Returns the router's next message of a kind."""
        return await self.hub._next(kind)

    def reply(self, run: RunStages, value: str) -> None:
        self.hub.say(StageValue(run.request_id, 1, "reply", "one", json.dumps(value).encode()))

    @property
    def in_flight(self) -> int:
        return self.stack.router._invoke._in_flight._by_tenant.all

    def metrics(self) -> str:
        return self.stack.router._metrics.text({}).decode()


@contextlib.asynccontextmanager
async def served(
    folder: Path, *loads: ReplicaLoad, entry: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Served]:
    listed = (entry_of(service_of(SPEC), **(entry or {})),)
    async with (
        router_of(folder, listed, **settings) as stack,
        hand_hub(folder, *(loads or (REPLICA,)), worker="w") as hub,
    ):
        await until(lambda: stack.router._replicas.count(SERVICE) == 1)
        yield Served(stack, hub)


def asking(text: str = "hi", **more: Any) -> bytes:
    body = json.dumps({"q": text}).encode()
    return head(len(body), **{"path": URL, **more}) + body


@pytest.fixture(autouse=True)
def whole(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Has the bodies of the requests that were answered as whole ones."""
    found: list[bytes] = []
    begin = WholeInvocations.begin

    def watched(self: WholeInvocations, request: Any) -> bool:
        found.append(request.body)
        return begin(self, request)

    monkeypatch.setattr(WholeInvocations, "begin", watched)
    return found


async def test_a_reply_has_the_headers_of_aiohttps_way(tmp_path: Path, whole: list[bytes]) -> None:
    answers: list[RawAnswer] = []
    async with served(tmp_path) as router, connected(router.stack) as peer:
        for parts in ((asking(),), (asking()[:-3], asking()[-3:])):
            for part in parts:
                peer.send(part)
                if part is not parts[-1]:
                    await until(lambda: router.in_flight == 1)
            run = await router.asked()
            assert (run.tenant, run.stream, json.loads(run.request)) == (
                "team-a",
                False,
                {"q": "hi"},
            )
            router.reply(run, "there")
            answers.append(await peer.answer())
            assert answers[-1].headers["x-flowmesh-request"] == run.request_id
            assert (await router.asked(EndRequest)).request_id == run.request_id
    first, second = answers
    assert len(whole) == 1
    assert (first.status, first.body) == (second.status, second.body) == (200, {"out": "there"})
    assert first.headers.keys() == second.headers.keys()
    for same in ("content-type", "content-length", "server"):
        assert first.headers[same] == second.headers[same]


REFUSED: dict[str, tuple[bytes, int, str | None]] = {
    "token": (asking(token="other"), 401, "invalid_api_key"),
    "no object": (head(2, path=URL) + b"[]", 400, "invalid_json"),
    "no text": (head(4, path=URL) + b'"\xff\xff"', 400, "invalid_json"),
    "no body": (head(0, path=URL), 400, "invalid_json"),
    "no field": (head(2, path=URL) + b"{}", 400, "missing_field"),
    "too large": (asking("x" * 400), 413, "request_too_large"),
    "large and malformed": (head(400, path=URL) + b"[" * 400, 413, "request_too_large"),
    "schema": (asking("longer"), 400, "invalid_field"),
    "timeout": (asking(more="X-Request-Timeout: soon"), 400, "invalid_value"),
    "other service": (asking(token="of-other"), 404, "service_not_found"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_refusal_is_the_same_whether_a_request_comes_whole_or_not(
    tmp_path: Path, name: str, whole: list[bytes]
) -> None:
    data, status, code = REFUSED[name]
    other = entry_of(service_of(SPEC))
    more = {"request_bytes_max": 256, "request_schema": SCHEMA}
    async with served(tmp_path, entry=more) as router, connected(router.stack) as peer:
        services = router.stack.router._services
        token = ServiceToken(token_hash("of-other"), "team-b")
        services._tokens[token.hash] = (type(other)("team-b/other", "other", (token,)), token)
        peer.send(data)
        refused = await peer.answer()
        assert len(whole) == 1
        peer.send(data.replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        later = await peer.answer()
        assert len(whole) == 1
        await until(lambda: router.in_flight == 0)
        text = router.metrics()
    assert (refused.status, refused.error["code"]) == (status, code)
    assert (later.status, later.body) == (refused.status, refused.body)
    assert f'flowmesh_service_refused_total{{why="{code}"}} 2.0' in text
    assert 'outcome="refused"' not in text, "the caller has to change the request"


async def test_without_a_replica_the_error_says_when_to_try_again(
    tmp_path: Path, whole: list[bytes]
) -> None:
    async with served(tmp_path) as router, connected(router.stack) as peer:
        router.hub.writer.close()
        await until(lambda: router.stack.router._replicas.count(SERVICE) == 0)
        peer.send(asking())
        answer = await peer.answer()
        assert (answer.status, answer.error["code"]) == (503, "no_replica")
        assert answer.headers["retry-after"] == "5"
    assert len(whole) == 1


async def test_what_follows_on_a_connection_is_answered_in_order(tmp_path: Path) -> None:
    async with served(tmp_path) as router, connected(router.stack) as peer:
        peer.send(asking("first"))
        first = await router.asked()
        peer.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" + asking("third"))
        peer.send(b"GET /v1/none HTTP/1.1\r\nHost: x\r\n\r\n")
        async with connected(router.stack) as other:  # what was sent before is read by then
            other.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            await other.answer()
        router.reply(first, "one")
        assert (await peer.answer()).body == {"out": "one"}
        assert (await peer.answer()).body == {"status": "ok"}
        router.reply(await router.asked(), "three")
        assert (await peer.answer()).body == {"out": "three"}
        assert (await peer.answer()).status == 404


async def test_a_flood_on_one_connection_stays_in_its_socket(tmp_path: Path) -> None:
    async with served(tmp_path) as router, connected(router.stack) as peer:
        peer.send(asking("first"))
        first = await router.asked()
        (protocol,) = router.stack.router._connections._open
        peer.send(asking("more") * 2_000)
        await until(lambda: protocol._buffer_paused)
        assert len(protocol._messages) <= 32
        router.reply(first, "one")
        assert (await peer.answer()).body == {"out": "one"}
        for _ in range(40):
            router.reply(await router.asked(), "more")
            assert (await peer.answer()).body == {"out": "more"}


async def test_a_client_that_vanishes_ends_its_request_and_is_counted(tmp_path: Path) -> None:
    async with served(tmp_path) as router:
        async with connected(router.stack) as peer:
            peer.send(asking())
            run = await router.asked()
            assert router.in_flight == 1
            peer.reset()
        assert (await router.asked(EndRequest)).request_id == run.request_id
        await until(lambda: router.in_flight == 0)
        assert not router.stack.router._staged._pending
        assert router.stack.router._connections.count == 0
        text = router.metrics()
        assert f'requests_total{{outcome="cancelled",service="{SERVICE}"}} 1.0' in text
        assert f'in_flight{{service="{SERVICE}"}} 0.0' in text
        async with connected(router.stack) as own:
            own.send(asking())
            router.reply(await router.asked(), "again")
            assert (await own.answer()).body == {"out": "again"}


async def test_a_request_without_a_reply_ends_at_its_timeout(tmp_path: Path) -> None:
    async with served(tmp_path) as router, connected(router.stack) as peer:
        peer.send(asking(more="X-Request-Timeout: 0.01"))
        run = await router.asked()
        answer = await peer.answer()  # a second later: the hub should have said so itself
        assert (answer.status, answer.error["code"]) == (504, "deadline_exceeded")
        router.reply(run, "late")
        peer.send(asking())
        router.reply(await router.asked(), "next")
        assert (await peer.answer()).body == {"out": "next"}


async def test_a_stopping_router_answers_first_and_then_closes(tmp_path: Path) -> None:
    async with served(tmp_path) as router, connected(router.stack) as peer:
        peer.send(asking())
        run = await router.asked()
        stopping = asyncio.create_task(router.stack.router.stop())
        router.reply(run, "last")
        assert (await peer.answer()).body == {"out": "last"}
        assert await peer.until_closed() == b""
        await stopping


async def test_a_stopping_router_cancels_what_does_not_end(tmp_path: Path) -> None:
    async with served(tmp_path, end_within_s=0.05) as router, connected(router.stack) as peer:
        peer.send(asking())
        run = await router.asked()
        stopping = asyncio.create_task(router.stack.router.stop())
        assert await peer.until_closed() == b""
        assert (await router.asked(EndRequest)).request_id == run.request_id
        await stopping
        assert router.in_flight == 0


async def test_a_client_that_wants_its_connection_closed_has_it_closed(
    tmp_path: Path, whole: list[bytes]
) -> None:
    async with served(tmp_path) as router, connected(router.stack) as peer:
        peer.send(asking(more="Connection: close"))
        router.reply(await router.asked(), "bye")
        assert (await peer.answer()).body == {"out": "bye"}
        assert await peer.until_closed() == b""
    assert not whole


async def test_a_client_that_takes_no_answer_is_disconnected(tmp_path: Path) -> None:
    async with served(tmp_path, slow_client_s=0.2) as router:
        small = socket.socket()
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        small.setblocking(False)
        host, _, port = router.stack.router.url.removeprefix("http://").partition(":")
        loop = asyncio.get_running_loop()
        await loop.sock_connect(small, (host, int(port)))
        await loop.sock_sendall(small, asking())
        router.reply(await router.asked(), "large" * 1_600_000)
        await until(lambda: router.stack.router._connections.count == 0)
        small.close()


async def test_headers_of_a_later_request_have_a_time_too(tmp_path: Path) -> None:
    async with served(tmp_path, header_s=0.2) as router, connected(router.stack) as peer:
        peer.send(asking())
        router.reply(await router.asked(), "one")
        await peer.answer()
        peer.send(asking()[:20])
        assert await peer.until_closed() == b""


async def test_a_token_that_was_good_is_refused_when_it_expires_or_is_revoked(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as router, connected(router.stack) as peer:
        table = router.stack.router._services
        listed = entry_of(service_of(SPEC))
        soon = ServiceToken(token_hash("soon"), "team-a", expires_s=time.time() + 0.5)

        async def status(token: str) -> int:
            peer.send(asking(token=token))
            if table.caller(token) is not None:
                router.reply(await router.asked(), "x")
            return (await peer.answer()).status

        table._tokens[soon.hash] = (listed, soon)
        assert await status("soon") == 200
        assert await status(TOKEN) == 200
        assert len(table._callers) == 2
        await until(lambda: time.time() > soon.expires_s)
        assert await status("soon") == 401
        for guessed in range(20):
            assert await status(f"guess-{guessed}") == 401
        assert len(table._callers) == 2
        tokens = (ServiceToken(token_hash("new"), "team-a"),)
        replaced = type(listed)(SERVICE, "ask", tokens, graph=listed.graph)
        table.use(RouterServices((replaced,)))
        assert await status(TOKEN) == 401
        assert await status("new") == 200


async def test_a_route_that_was_looked_up_ends_with_its_replica(tmp_path: Path) -> None:
    async with served(tmp_path) as router, connected(router.stack) as peer:
        for _ in range(2):
            peer.send(asking())
            run = await router.asked()
            assert [place.worker for place in run.route.stages] == ["w"]
            router.reply(run, "x")
            await peer.answer()
        router.hub.writer.close()
        replica = ReplicaLoad(f"{SERVICE}/only/r1/v", SERVICE, (), 8, component="only")
        async with hand_hub(tmp_path, replica, worker="v") as other:
            replicas = router.stack.router._replicas
            await until(lambda: [r.link.worker for r in replicas.of(SERVICE).values()] == ["v"])
            peer.send(asking())
            run = await Served(router.stack, other).asked()
            assert [place.worker for place in run.route.stages] == ["v"]
            Served(router.stack, other).reply(run, "y")
            assert (await peer.answer()).body == {"out": "y"}


async def test_a_chat_is_answered_alike_whole_or_not_and_streamed_where_it_asks(
    tmp_path: Path,
) -> None:
    async with echo_stack(tmp_path) as stack, connected(stack) as peer:
        answers = []
        for data in (request(chat("one two")), request(chat("one", n=99)), request(b"[")):
            for parts in ((data,), (data[:-1], data[-1:])):
                for part in parts:
                    peer.send(part)
                    await peer.writer.drain()
                    if part is not parts[-1]:
                        await until(lambda: bool(stack.router._endpoints._in_flight._by_tenant))
                answers.append(await peer.answer())
        assert [answer.status for answer in answers] == [200, 200, 400, 400, 400, 400]
        for whole, later in zip(answers[::2], answers[1::2], strict=True):
            assert whole.headers.keys() == later.headers.keys()
            assert whole.body.get("error") == later.body.get("error")
        assert answers[0].body["choices"] == answers[1].body["choices"]
        peer.send(request(chat("one two", stream=True)))
        head_of_stream = await peer.reader.readuntil(b"\r\n\r\n")
        assert b"text/event-stream" in head_of_stream
        assert b"[DONE]" in await peer.reader.readuntil(b"0\r\n\r\n")
        peer.send(request(chat("three")))
        assert (await peer.answer()).body["choices"][0]["message"]["content"] == "three"
