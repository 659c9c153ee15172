"""What a router keeps of a request that has ended: its record, and no body, error or frame."""

import asyncio
import gc
import json
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.flowmesh_serving.hand_hub import hand_hub, load
from tests.flowmesh_serving.raw_http import CHAT, chat, connected, request
from tests.flowmesh_serving.stack import MODEL, SERVICE, Stack, router_of, services, until
from tests.flowmesh_serving.stage_stack import SERVICE as STAGED
from tests.flowmesh_serving.stage_stack import URL, entry_of, service_of
from tests.flowmesh_serving.test_request_status import REPLICA, SPEC

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import (
    AskStages,
    CallEnded,
    RunStages,
    StageFailed,
    StageProgress,
    StageReport,
    StageValue,
)
from flowmesh_serving.http.whole_invocations import _Invocation
from flowmesh_serving.http.whole_requests import WholeRequest
from flowmesh_serving.requests.request_table import RequestTable
from flowmesh_serving.service_table import Caller

BODY_BYTES = 1_000_000


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Only what nothing refers to is freed: what a collection would have to find shows."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def errors_alive() -> int:
    return sum(issubclass(type(one), OpenAiError) for one in gc.get_objects())


def wholes() -> int:
    return sum(issubclass(type(one), (WholeRequest, _Invocation)) for one in gc.get_objects())


async def cancelled(stack: Stack, data: bytes) -> int:
    """Sends a request, cancels it by its id, and returns the status of its answer."""
    async with connected(stack) as peer:
        peer.send(data)
        requests = stack.router._requests
        await until(lambda: bool(requests._in_flight))
        next(iter(requests._in_flight.values())).cancel()
        return (await peer.answer()).status


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
async def test_cancelled_requests_leave_no_body_in_memory(tmp_path: Path, version: bytes) -> None:
    """A task's frames, with the body, stay for as long as an error that was raised in them."""
    data = request(chat("x" * BODY_BYTES)).replace(b"HTTP/1.1", version, 1)
    async with (
        router_of(tmp_path) as stack,
        hand_hub(tmp_path, load(f"{SERVICE}/llm/r1/0")) as hub,
    ):
        await stack.until_ready()
        assert await cancelled(stack, data) == 499
        await hub.call()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(10):
                assert await cancelled(stack, data) == 499
                await hub.call()  # else its link holds it
            await until(lambda: not stack.router._connections._open)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(stack.router._requests._ended[SERVICE, "team-a"]) == 11
    assert after - before < 5 * BODY_BYTES, "less than half of the bodies that were sent"


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
@pytest.mark.parametrize("times", [False, True])
async def test_answered_requests_leave_no_body_in_memory(
    tmp_path: Path, version: bytes, times: bool
) -> None:
    data = request(json.dumps({"q": "x" * BODY_BYTES}).encode(), path=URL)
    async with (
        router_of(tmp_path, (entry_of(service_of(SPEC)),), stage_times=times) as stack,
        hand_hub(tmp_path, REPLICA, worker="w", reports_stages=True) as hub,
    ):
        await until(lambda: stack.router._replicas.count(STAGED) == 1)

        async def answered() -> None:
            async with connected(stack) as peer:
                peer.send(data.replace(b"HTTP/1.1", version, 1))
                run = await hub._next(RunStages)
                hub.say(StageValue(run.request_id, 1, "reply", "two", b"2"))
                assert (await peer.answer()).status == 200
            if times:
                question = await hub._next(AskStages)
                hub.say(StageReport(question.number, (StageProgress("one", "ended"),)))
            await until(lambda: not stack.router._connections._open)

        await answered()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(10):
                await answered()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert after - before < 5 * BODY_BYTES, "less than half of the bodies that were sent"


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("path", [URL, CHAT])
async def test_a_request_that_came_whole_is_freed_with_its_answer(
    tmp_path: Path, path: str
) -> None:
    listed = (*services(tokens=()), entry_of(service_of(SPEC)))
    if path == CHAT:
        listed = (*services(), entry_of(service_of(SPEC), tokens=()))
    async with (
        router_of(tmp_path, listed) as stack,
        hand_hub(tmp_path, load(f"{SERVICE}/llm/r1/0"), REPLICA, worker="w") as hub,
    ):
        await until(lambda: stack.router._replicas.count(STAGED) == 1)
        async with connected(stack) as peer:
            for _ in range(3):
                if path == CHAT:
                    peer.send(request(chat("one")))
                    call = await hub.call()
                    hub.say(CallEnded(call.call_id, "ok", body=b"{}"))
                else:
                    peer.send(request(b'{"q": 1}', path=URL))
                    run = await hub._next(RunStages)
                    hub.say(StageValue(run.request_id, 1, "reply", "two", b"2"))
                assert (await peer.answer()).status == 200
        await until(lambda: not stack.router._connections._open)
        assert wholes() == 0


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("path", [URL, CHAT])
async def test_a_request_whose_client_vanishes_is_freed(tmp_path: Path, path: str) -> None:
    listed = (entry_of(service_of(SPEC)),) if path == URL else services()
    data = request(b'{"q": 1}', path=URL) if path == URL else request(chat("one"))
    async with (
        router_of(tmp_path, listed) as stack,
        hand_hub(tmp_path, load(f"{SERVICE}/llm/r1/0"), REPLICA, worker="w"),
    ):
        service = STAGED if path == URL else SERVICE
        await until(lambda: bool(stack.router._replicas.count(service)))
        for _ in range(3):
            async with connected(stack) as peer:
                peer.send(data)
                await until(lambda: bool(stack.router._requests._in_flight))
                peer.reset()
            await until(lambda: not stack.router._requests._in_flight)
        await until(lambda: not stack.router._connections._open)
        assert wholes() == 0


@pytest.mark.usefixtures("uncollected")
async def test_no_error_outlives_its_request(tmp_path: Path) -> None:
    listed = (*services(), entry_of(service_of(SPEC), tokens=()))
    async with (
        router_of(tmp_path, listed) as stack,
        hand_hub(tmp_path, load(f"{SERVICE}/llm/r1/0"), REPLICA, worker="w") as hub,
    ):
        await stack.until_ready()
        before = errors_alive()
        assert await cancelled(stack, request(chat("one"))) == 499
        assert await cancelled(stack, request(chat("one", stream=True))) == 499
        keyed = request(chat("one"), more="Idempotency-Key: k")
        async with connected(stack) as first, connected(stack) as second:
            first.send(keyed)
            call = await hub.call()
            while call.call_id not in stack.router._requests._in_flight:
                call = await hub.call()  # of those that were cancelled
            second.send(keyed)
            replies = stack.router._replies
            await until(lambda: any(one.waiters for one in replies._open.values()))
            hub.say(CallEnded(call.call_id, "deadline"))
            assert (await first.answer()).status == (await second.answer()).status == 504
        for refused in (request(chat("one", model="none")), request(b"{")):
            async with connected(stack) as peer:
                peer.send(refused)
                assert (await peer.answer()).status in {400, 404}
        await until(lambda: not stack.router._connections._open)
        assert errors_alive() == before


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
async def test_no_error_outlives_its_request_to_stages(tmp_path: Path, version: bytes) -> None:
    data = request(b'{"q": 1}', path=URL).replace(b"HTTP/1.1", version, 1)
    async with (
        router_of(tmp_path, (entry_of(service_of(SPEC)),)) as stack,
        hand_hub(tmp_path, REPLICA, worker="w"),
    ):
        await until(lambda: stack.router._replicas.count(STAGED) == 1)
        before = errors_alive()
        assert await cancelled(stack, data) == 499
        await until(lambda: not stack.router._connections._open)
        assert errors_alive() == before


async def test_a_hub_fills_no_memory_by_the_code_of_an_error(tmp_path: Path) -> None:
    """The record of a request keeps it; bodies of failures are bounded by the frame alone."""
    code = "x" * BODY_BYTES
    body = json.dumps({"error": {"message": "no", "code": code}}).encode()
    async with (
        router_of(tmp_path, (entry_of(service_of(SPEC)),)) as stack,
        hand_hub(tmp_path, REPLICA, worker="w") as hub,
        connected(stack) as peer,
    ):
        await until(lambda: stack.router._replicas.count(STAGED) == 1)
        peer.send(request(b'{"q": 1}', path=URL))
        run = await hub._next(RunStages)
        hub.say(StageFailed(run.request_id, 1, "one", "", "failed", 500, body))
        assert (await peer.answer()).error["message"] == "no (stage one)"
        (record,) = stack.router._requests._ended[STAGED, "team-a"].values()
        assert record.code is not None
        assert len(record.code) == 64


def test_times_of_a_request_are_right_where_the_clock_is_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, caller = RequestTable(), Caller(services()[0], "team-a")
    first = table.begin("first", caller, MODEL, lambda: None)
    monkeypatch.setattr(time, "time", lambda: first.created_s - 600.0)
    second = table.begin("second", caller, MODEL, lambda: None)
    second.created_s = time.time()
    table.end(first, "ok")
    assert first.created_s <= first.ended_s < first.created_s + 60.0
    assert table.of(caller) == [second, first]


async def test_a_router_of_cancelled_requests_is_left_without_tasks(tmp_path: Path) -> None:
    async with router_of(tmp_path) as stack, hand_hub(tmp_path, load(f"{SERVICE}/llm/r1/0")):
        await stack.until_ready()
        before = len(asyncio.all_tasks())
        for _ in range(5):
            assert await cancelled(stack, request(chat("one"))) == 499
        await until(lambda: len(asyncio.all_tasks()) <= before)
