"""Attacker: W, the hub of a worker to which the route of a request gives a stage.
Action: writes other stages' fields of the reply, fails them, streams and relays without end.
Must not happen: a reply contains it, another hub's request fails, or the router's memory grows.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.flowmesh_serving.hand_hub import HandHub, hand_hub
from tests.flowmesh_serving.stack import TOKEN, Stack, router_of, until
from tests.flowmesh_serving.stage_stack import SERVICE, URL, entry_of, python, service_of

from flowmesh_core.protocol.serving import (
    CREDIT_BYTES,
    VALUE_BYTES_MAX,
    Piece,
    ReplicaLoad,
    RunStages,
    StageFailed,
    StageValue,
)
from flowmesh_serving.stages.staged_requests import PendingRequest

CODE = "def same(batch):\n    return batch\n"
CHAT = {"messages": [{"role": "user", "content": "{{ two }}"}]}
SPEC: dict[str, Any] = {
    "inputs": {"base": {"model": "smollm2-135m-instruct"}},
    "components": {
        "first": python(CODE, "same"),
        "second": python(CODE, "same", ownHost=True),
        "writer": {"uses": "llm.generate", "inputs": {"model": "inputs.base"}},
    },
    "stages": [
        {"name": "one", "component": "first", "inputs": {"q": "request.q"}},
        {"name": "two", "component": "second", "inputs": {"value": "one"}},
        {"name": "answer", "component": "writer", "stream": True, "with": CHAT},
    ],
    "reply": {"a": "one", "b": "two", "said": "answer.completion"},
}
STREAM = {"Accept": "text/event-stream"}
EVENT = b'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n'
ROUTED = {"first": "w-1", "second": "w-2", "writer": "w-2"}


@dataclass
class Routed:
    """A router with two hubs that a test plays: ``one`` has the first stage, ``two`` the others."""

    stack: Stack
    one: HandHub
    two: HandHub
    session: aiohttp.ClientSession

    async def begin(self, **headers: str) -> tuple["asyncio.Task[tuple[int, str]]", RunStages]:
        """Sends a request; returns its task and what hubs get of it."""
        asking = asyncio.create_task(self._ask(headers))
        run = await self.one._next(RunStages)
        assert await self.two._next(RunStages)
        return asking, run

    async def _ask(self, headers: dict[str, str]) -> tuple[int, str]:
        url = f"{self.stack.router.url}{URL}"
        async with self.session.post(url, json={"q": "x"}, headers=headers) as response:
            return response.status, await response.text()

    def answer(self, run: RunStages, **values: str) -> None:
        """Sends values of the reply, each by the hub that the route gives its stage to."""
        for stage, text in {"one": '"1"', "two": '"2"', "answer": _completion("x")}.items():
            hub = self.one if stage == "one" else self.two
            said = values.get(stage, text).encode()
            hub.say(StageValue(run.request_id, 1, "reply", stage, said))

    @property
    def pending(self) -> PendingRequest:
        (found,) = self.stack.router._staged._pending.values()
        return found

    async def serves(self) -> None:
        """Hubs that keep to the protocol get their reply to the client."""
        asking, run = await self.begin()
        self.answer(run)
        status, text = await asking
        assert (status, json.loads(text)) == (200, {"a": "1", "b": "2", "said": "x"})


def _completion(text: str) -> str:
    return json.dumps({"completion": text, "finish_reason": "stop"})


@contextlib.asynccontextmanager
async def routed(folder: Path) -> AsyncIterator[Routed]:
    loads: dict[str, list[ReplicaLoad]] = {"w-1": [], "w-2": []}
    for name, worker in ROUTED.items():
        loads[worker].append(ReplicaLoad(f"r-{name}", SERVICE, (), 4, component=name))
    async with (
        router_of(folder, (entry_of(service_of(SPEC)),), replica_wait_s=0.05) as stack,
        hand_hub(folder, *loads["w-1"], worker="w-1") as one,
        hand_hub(folder, *loads["w-2"], worker="w-2") as two,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session,
    ):
        await until(lambda: stack.router._replicas.count(SERVICE) == len(ROUTED))
        yield Routed(stack, one, two, session)


FIELDS = {
    "the field of another stage": '2,"a":"forged"',
    "the field of another stage, after its own object": '{"b":2},"a":"forged"',
    "the end of the reply": '2}{"a":"forged"',
    "no JSON": "forged",
    "nothing": "",
}


@pytest.mark.parametrize("name", FIELDS)
async def test_a_stage_writes_its_own_field_of_a_reply_only(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with routed(tmp_path) as routers:
        asking, run = await routers.begin()
        routers.answer(run, two=FIELDS[name])
        status, text = await asking
        assert "forged" not in text
        assert (status, json.loads(text)["error"]["code"]) == (500, "reply")
        assert not [r for r in caplog.records if r.levelno >= logging.ERROR]
        await routers.serves()


async def test_a_hub_fails_its_own_stages_only(tmp_path: Path) -> None:
    async with routed(tmp_path) as routers:
        asking, run = await routers.begin()
        for stage in ("two", "answer"):
            failed = StageFailed(run.request_id, 1, stage, "r-second", "failed", 500, b"")
            routers.one.say(failed, StageFailed(run.request_id, 1, stage, "r-second", "lost"))
        routers.one.say(StageValue(run.request_id, 2, "reply", "one", b'"early"'))
        routers.answer(run)
        status, text = await asking
        assert (status, json.loads(text)["a"]) == (200, "1")
        await routers.serves()


ODD_FAILURES = {
    "an outcome that there is not": ("great", 500),
    "a success": ("ok", 200),
    "a failure with 200": ("failed", 200),
    "an interim response": ("failed", 100),
    "a response without a body": ("failed", 204),
    "a status that there is not": ("failed", 1 << 40),
}


@pytest.mark.parametrize("name", ODD_FAILURES)
async def test_a_failure_that_no_hub_sends_closes_the_link(tmp_path: Path, name: str) -> None:
    async with routed(tmp_path) as routers:
        asking, run = await routers.begin()
        outcome, status = ODD_FAILURES[name]
        body = b'{"error":{"message":"x"}}'
        routers.one.say(StageFailed(run.request_id, 1, "one", "r-first", outcome, status, body))
        assert "a frame that its call does not allow" in await routers.one.refusal()
        assert (await asking)[0] == 503
        await until(lambda: routers.stack.router._replicas.count(SERVICE) == len(ROUTED) - 1)


async def test_a_stream_beyond_its_credit_closes_the_link_before_it_fills_the_router(
    tmp_path: Path,
) -> None:
    async with routed(tmp_path) as routers:
        asking, run = await routers.begin(**STREAM)
        pending, piece = routers.pending, Piece(run.request_id, EVENT % (b"x" * 1000))
        sent = 0
        while not routers.two.writer.is_closing() and sent < 16 << 20:
            routers.two.say(*[piece] * 60)  # one read of the router: no client takes it meanwhile
            sent += 60 * len(piece.data)
            try:
                await routers.two.writer.drain()
            except ConnectionError:
                break
            assert pending.unread_bytes <= CREDIT_BYTES + len(piece.data)
        await until(lambda: routers.stack.router._replicas.count(SERVICE) == 1)
        status, text = await asking
        assert status == 503 or "event: error" in text


async def streamed(routers: Routed, run: RunStages, data: bytes, times: int) -> None:
    """Streams pieces, each once the client has taken the one before; stops at the request's end."""
    pending = routers.pending
    for _ in range(times):
        routers.two.say(Piece(run.request_id, data))
        await until(lambda: pending.has_streamed)
        await until(lambda: not pending.unread_bytes or not routers.stack.router._staged._pending)
        if not routers.stack.router._staged._pending:
            return


async def test_an_answer_that_is_streamed_is_kept_up_to_the_size_of_a_value(tmp_path: Path) -> None:
    async with routed(tmp_path) as routers:
        asking, run = await routers.begin(**STREAM)
        await streamed(routers, run, EVENT % (b"x" * 60_000), 2 + VALUE_BYTES_MAX // 60_000)
        status, text = await asking
        assert (status, "value_too_large" in text[-300:]) == (200, True)
        asking, run = await routers.begin(**STREAM)
        await streamed(routers, run, EVENT % b"said", 1)
        routers.answer(run, answer="")
        status, text = await asking
        assert json.loads(text.rpartition("data: ")[2])["said"] == "said"


@pytest.mark.parametrize(
    "data", [b"data: [1]\n\n", b"data: {\n\n", b'data: {"choices":[{"delta":{"content":7}}]}\n\n']
)
async def test_pieces_that_are_no_events_fail_their_own_request(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with routed(tmp_path) as routers:
        asking, run = await routers.begin(**STREAM)
        routers.two.say(Piece(run.request_id, data))
        status, text = await asking
        assert (status, "unreadable_answer" in text) == (200, True)
        assert not [r for r in caplog.records if r.levelno >= logging.ERROR]
        await routers.serves()


async def test_a_value_is_relayed_once(tmp_path: Path) -> None:
    async with routed(tmp_path) as routers:
        asking, run = await routers.begin()
        value = StageValue(run.request_id, 1, "two", "one", b'"' + b"x" * 100_000 + b'"')
        for _ in range(50):
            routers.one.say(value)
            await routers.one.writer.drain()
        routers.answer(run)
        assert (await asking)[0] == 200
        assert await routers.two._next(StageValue) == value
        asking, run = await routers.begin()
        again = StageValue(run.request_id, 1, "two", "one", b'"2"')
        routers.one.say(again)
        assert await routers.two._next(StageValue) == again  # none of the first request between
        routers.answer(run)
        assert (await asking)[0] == 200
