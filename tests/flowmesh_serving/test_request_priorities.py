"""``X-Flowmesh-Priority``: the order of a namespace's own requests, and which of them is shed."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.flowmesh_serving.stack import (
    MODEL,
    SALTS,
    SERVICE,
    ask,
    echo_stack,
    services,
    until,
    until_open,
)
from tests.virtual_time import in_virtual_time

from flowmesh_core.protocol.router_services import ServiceEntry, ServiceToken, token_hash
from flowmesh_core.protocol.serving import (
    DEADLINE,
    FULL,
    OK,
    CallEnded,
    CallHostHello,
    CallRefused,
    ServiceCall,
)
from flowmesh_worker.serving.instance_link import InstanceLink

CHAT = "/v1/chat/completions"


def at(priority: str) -> dict[str, str]:
    return {"X-Flowmesh-Priority": priority}


def begin(client: openai.AsyncOpenAI, priority: str, text: str = "wait", **more: Any) -> Any:
    return asyncio.create_task(ask(client, text, extra_headers=at(priority), **more))


async def stop(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_another_name_than_the_three_is_refused_with_them(tmp_path: Path) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        for name in ("urgent", "HIGH", "", "1"):
            with pytest.raises(openai.BadRequestError, match="expected low, normal, high") as wrong:
                await ask(client, "one", extra_headers=at(name))
            assert wrong.value.param == "X-Flowmesh-Priority"
        for name in ("low", "normal", "high"):
            answer = await ask(client, "one", extra_headers=at(name))
            assert answer.seen["priority"] == 1 << 30  # the engine orders nobody's requests by it


async def test_the_highest_priority_of_a_namespace_begins_first(tmp_path: Path) -> None:
    async with echo_stack(tmp_path, calls_max=1) as stack, stack.client as client:
        first = begin(client, "low")
        await stack.until_load(running=1)
        low = begin(client, "low", "low")
        await stack.until_load(queued=1)
        high = begin(client, "high")
        await stack.until_load(queued=2)
        await stop(first)
        await until(lambda: stack.hub._loads()[0].queued == 1)
        assert not low.done()  # the other one waits in the engine
        await stop(high)
        assert (await low).choices[0].message.content == "low"


async def test_a_higher_request_takes_the_place_of_the_newest_lower_one(tmp_path: Path) -> None:
    async with (
        echo_stack(tmp_path, calls_max=2, listed=services(in_flight_max=3)) as stack,
        stack.client as client,
    ):
        first = begin(client, "normal")
        await stack.until_load(running=1)
        older = begin(client, "low")
        await stack.until_load(running=2)
        newer = begin(client, "low")
        await stack.until_load(queued=1)
        with pytest.raises(openai.RateLimitError):
            await ask(client, "one", extra_headers=at("low"))
        high = begin(client, "high")
        with pytest.raises(openai.RateLimitError, match="overloaded") as shed:
            await newer
        assert shed.value.response.headers["Retry-After"] == "1"
        assert shed.value.response.headers["X-Flowmesh-Request"]
        again = begin(client, "high")
        with pytest.raises(openai.RateLimitError, match="overloaded"):
            await asyncio.wait_for(older, 30)
        with pytest.raises(openai.RateLimitError):  # none is lower that has not begun to answer
            await ask(client, "one", extra_headers=at("normal"))
        assert not any(task.done() for task in (first, high, again))
        await stop(first, high, again)
        await until_open(client, 0)


async def test_a_stream_that_has_begun_is_not_shed(tmp_path: Path) -> None:
    async with (
        echo_stack(tmp_path, listed=services(in_flight_max=1)) as stack,
        stack.client as client,
    ):
        stream = await ask(client, "one wait", stream=True, extra_headers=at("low"))
        await anext(stream)
        with pytest.raises(openai.RateLimitError):
            await ask(client, "one", extra_headers=at("high"))
        await stream.close()


async def test_a_namespace_takes_no_place_of_another_by_its_priorities(tmp_path: Path) -> None:
    tokens = (*services()[0].tokens, ServiceToken(token_hash("b"), "team-b"))
    listed = (ServiceEntry(SERVICE, MODEL, tokens, in_flight_max=4),)
    salts = {**SALTS, "team-b": "salt-b"}
    async with (
        echo_stack(tmp_path, listed=listed, salts=salts) as stack,
        stack.client as client,
        stack.client_of("b") as client_b,
    ):
        own = [begin(client, "high") for _ in range(2)]
        others = [begin(client_b, "low") for _ in range(2)]
        await stack.until_load(running=4)
        for _ in range(3):
            with pytest.raises(openai.RateLimitError):
                await ask(client, "one", extra_headers=at("high"))
        assert not any(task.done() for task in (*own, *others))
        await stop(*own, *others)


class Host:
    """The channel of an instance link: records which calls were sent to the host."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    def send(self, message: object) -> None:
        if isinstance(message, ServiceCall):
            self.begun.append(message.call_id)


@in_virtual_time
async def test_low_requests_wait_until_their_timeout_and_begin_in_the_turns_of_their_own() -> None:
    link, host, replies = InstanceLink(lambda: None), Host(), list[CallEnded]()
    link._channel = host  # type: ignore[assignment]
    link._receive(CallHostHello((CHAT,), 2))
    link.raise_calls_max(2)
    add = _adder(link, replies)
    add("long", "c", 0, 100.0)
    add("running", "a", 0, 100.0)
    add("low", "a", -1, 5.0)
    add("b", "b", 0, 10.0)
    await asyncio.sleep(1)
    add("high", "a", 1, 10.0)
    link._receive(CallEnded("running", OK))
    assert host.begun == ["long", "running", "high"]  # in the turn of `low`, before `b`
    await asyncio.sleep(1)
    link._receive(CallEnded("high", OK))
    assert host.begun[-1] == "b"  # `low` has the later turn of `high` now
    await asyncio.sleep(3.5)
    assert [(m.call_id, m.outcome) for m in replies[2:]] == [("low", DEADLINE)]
    assert link.queued == 0


@in_virtual_time
async def test_a_full_replica_refuses_the_lowest_priority_of_the_sender() -> None:
    link, host, refused = InstanceLink(lambda: None), Host(), list[object]()
    link._channel = host  # type: ignore[assignment]
    link._receive(CallHostHello((CHAT,), 1))
    link.raise_calls_max(1)
    add = _adder(link, refused)
    for call_id, priority in (("x", -1), ("low", -1), ("normal", 0), ("high", 1), ("more", -1)):
        add(call_id, "a", priority, 10.0)
    assert refused == [CallRefused("low", FULL), CallRefused("more", FULL)]
    for call_id in ("x", "high", "normal"):
        link._receive(CallEnded(call_id, OK))
    assert host.begun == ["x", "high", "normal"]


def _adder(link: InstanceLink, replies: list[Any]) -> Callable[[str, str, int, float], None]:
    def add(call_id: str, tenant: str, priority: int, within_s: float) -> None:
        call = ServiceCall(call_id, "", CHAT, MODEL, b"{}", False, int(within_s * 1000), tenant, 0)
        link.add(call, replies.append, service=SERVICE, priority=priority)

    return add
