"""A request that is sent again with its idempotency key gets the first reply, computed once."""

import asyncio
import contextlib
import json
import random
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.flowmesh_serving.hand_hub import HandHub, hand_hub, load
from tests.flowmesh_serving.stack import (
    MODEL,
    SERVICE,
    TOKEN,
    Stack,
    router_of,
    says,
    services,
    until,
)
from tests.flowmesh_serving.stage_stack import SERVICE as STAGED
from tests.flowmesh_serving.stage_stack import URL, entry_of, python, service_of

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.router_services import ServiceEntry, ServiceToken, token_hash
from flowmesh_core.protocol.serving import (
    Abort,
    CallEnded,
    EndRequest,
    Piece,
    ReplicaLoad,
    RunStages,
    ServiceCall,
    StageValue,
)
from flowmesh_serving.errors import lost_replica
from flowmesh_serving.http import idempotent_replies
from flowmesh_serving.http.idempotent_replies import IdempotentReplies
from flowmesh_serving.http.whole_response import WholeResponse
from flowmesh_serving.service_table import Caller

CHAT = "/v1/chat/completions"
OTHER = "fm-token-of-team-b"
TOKENS = (
    ServiceToken(token_hash(TOKEN), "team-a"),
    ServiceToken(token_hash(OTHER), "team-b"),
)
SPEC: dict[str, Any] = {
    "components": {
        "only": python("def same(batch):\n    return batch", "same"),
        "writer": {"uses": "test.echo"},
    },
    "stages": [
        {"name": "one", "component": "only", "inputs": {"q": "request.q"}},
        {
            "name": "two",
            "component": "writer",
            "with": {"prompt": "{{ one.q }}"},
            "stream": True,
        },
    ],
    "reply": {"out": "two.completion"},
}
REPLICAS = tuple(
    ReplicaLoad(f"{STAGED}/{name}/r1/w", STAGED, (), 8, component=name)
    for name in ("only", "writer")
)


class Clients:
    """Sends requests to one router, each on a connection of its own."""

    def __init__(self, stack: Stack, hub: HandHub) -> None:
        self.stack = stack
        self.hub = hub

    async def answer(
        self, path: str, body: Any, key: str = "k", token: str = TOKEN, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        sent = {"Authorization": f"Bearer {token}", "Idempotency-Key": key, **headers}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.stack.router.url}{path}", json=body, headers=sent) as response,
        ):
            return response.status, dict(response.headers), await response.read()

    def ask(self, text: str = "hi", stream: bool = False, **more: Any) -> "asyncio.Task[Any]":
        body = {"model": MODEL, "messages": says(text), "stream": stream}
        return asyncio.create_task(self.answer(CHAT, body, **more))

    def invoke(self, text: str = "hi", **more: Any) -> "asyncio.Task[Any]":
        return asyncio.create_task(self.answer(URL, {"q": text}, **more))

    async def until_waiting(self, count: int = 1) -> None:
        """Waits until so many requests wait for another's reply."""
        replies = self.stack.router._replies
        await until(lambda: sum(len(one.waiters) for one in replies._open.values()) == count)

    async def until_idle(self) -> None:
        await until(lambda: self.stack.router._invoke._in_flight._by_tenant.all == 0)
        assert not self.stack.router._replies._open


@contextlib.asynccontextmanager
async def calls(folder: Path) -> AsyncIterator[Clients]:
    async with (
        router_of(folder, services(tokens=TOKENS)) as stack,
        hand_hub(folder, load(f"{SERVICE}/llm/r1/0")) as hub,
    ):
        await stack.until_ready()
        yield Clients(stack, hub)


@contextlib.asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[Clients]:
    async with (
        router_of(folder, (entry_of(service_of(SPEC), tokens=TOKENS),)) as stack,
        hand_hub(folder, *REPLICAS, worker="w") as hub,
    ):
        await until(lambda: stack.router._replicas.count(STAGED) == 2)
        yield Clients(stack, hub)


def error_of(answer: tuple[int, dict[str, str], bytes]) -> tuple[int, str, str | None]:
    error = json.loads(answer[2])["error"]
    return answer[0], error["code"], error["param"]


def assert_replayed(first: Any, again: Any) -> None:
    assert (again[0], again[2]) == (first[0], first[2]) == (200, first[2])
    assert again[1]["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first[1]
    for name in ("X-Flowmesh-Request", "X-Flowmesh-Release", "Content-Type"):
        assert again[1][name] == first[1][name]


async def test_a_second_call_waits_for_the_first_and_both_have_its_reply(tmp_path: Path) -> None:
    async with calls(tmp_path) as clients:
        first = clients.ask()
        call = await clients.hub.call()
        second = clients.ask()
        await clients.until_waiting()
        clients.hub.say(CallEnded(call.call_id, "ok", body=b'{"n":1}'))
        assert_replayed(await first, await second)
        assert_replayed(await first, await clients.ask())  # remembered
        await clients.until_idle()
        other = clients.ask(key="l")  # nothing else was computed before it
        call = await clients.hub.call()
        clients.hub.say(CallEnded(call.call_id, "ok", body=b'{"n":2}'))
        assert (await other)[2] == b'{"n":2}'


async def test_a_second_request_to_stages_waits_for_the_first(tmp_path: Path) -> None:
    async with staged(tmp_path) as clients:
        first = clients.invoke()
        run = await clients.hub._next(RunStages)
        second = clients.invoke()
        await clients.until_waiting()
        value = json.dumps({"completion": "there"}).encode()
        clients.hub.say(StageValue(run.request_id, 1, "reply", "two", value))
        assert_replayed(await first, await second)
        assert_replayed(await first, await clients.invoke())
        assert json.loads((await first)[2]) == {"out": "there"}


async def test_a_stream_is_given_again_whole(tmp_path: Path) -> None:
    async with calls(tmp_path) as clients:
        first = clients.ask(stream=True)
        call = await clients.hub.call()
        clients.hub.say(Piece(call.call_id, b"data: 1\n\n"))
        second = clients.ask(stream=True)
        await clients.until_waiting()
        clients.hub.say(Piece(call.call_id, b"data: 2\n\n"), CallEnded(call.call_id, "ok"))
        assert_replayed(await first, await second)
        assert (await second)[2] == b"data: 1\n\ndata: 2\n\n"
        assert_replayed(await first, await clients.ask(stream=True))


async def test_a_stream_of_stages_is_given_again_whole(tmp_path: Path) -> None:
    events = {"Accept": "text/event-stream"}
    chunk = b'data: {"choices": [{"text": "there"}]}\n\n'
    async with staged(tmp_path) as clients:
        first = clients.invoke(**events)
        run = await clients.hub._next(RunStages)
        second = clients.invoke(**events)
        await clients.until_waiting()
        clients.hub.say(Piece(run.request_id, chunk, 1))
        clients.hub.say(StageValue(run.request_id, 1, "reply", "two", b""))
        assert_replayed(await first, await second)
        assert (await second)[2].endswith(b'event: reply\ndata: {"out":"there"}\n\n')
        assert error_of(await clients.invoke())[1] == "idempotency_key_reused"  # no stream


async def test_a_key_is_of_one_request(tmp_path: Path) -> None:
    async with calls(tmp_path) as clients:
        first = clients.ask()
        call = await clients.hub.call()
        refused = (422, "idempotency_key_reused", "Idempotency-Key")
        assert error_of(await clients.ask("other")) == refused
        clients.hub.say(CallEnded(call.call_id, "ok", body=b"{}"))
        await first
        assert error_of(await clients.ask("other")) == refused
        assert error_of(await clients.ask(stream=True)) == refused


async def test_a_key_that_is_too_long_is_refused(tmp_path: Path) -> None:
    async with calls(tmp_path) as clients:
        assert error_of(await clients.ask(key="k" * 256)) == (
            400,
            "invalid_value",
            "Idempotency-Key",
        )


async def test_the_keys_of_a_tenant_are_its_own(tmp_path: Path) -> None:
    async with calls(tmp_path) as clients:
        found = {}
        for token in (TOKEN, OTHER):
            asking = clients.ask(token=token)
            call = await clients.hub.call()
            clients.hub.say(CallEnded(call.call_id, "ok", body=json.dumps(call.tenant).encode()))
            found[call.tenant] = await asking
        for token, tenant in ((TOKEN, "team-a"), (OTHER, "team-b")):
            assert_replayed(found[tenant], await clients.ask(token=token))
            assert json.loads((await clients.ask(token=token))[2]) == tenant


async def test_a_router_that_was_started_again_computes_again_with_the_same_seed(
    tmp_path: Path,
) -> None:
    seeds, ids = [], []
    for life in ("first", "second"):
        folder = tmp_path / life
        folder.mkdir()
        async with calls(folder) as clients:
            asking = clients.ask()
            call = await clients.hub.call()
            clients.hub.say(CallEnded(call.call_id, "ok", body=b"{}"))
            await asking
            seeds.append(call.seed)
            ids.append(call.call_id)
            replies = clients.stack.router._replies
    assert seeds[0] == seeds[1]
    assert ids[0] != ids[1]
    assert (replies._size, replies._expiry) == (0, None), "nothing stays behind a router that ends"


@pytest.mark.parametrize("stream", [False, True])
async def test_where_the_first_client_is_gone_one_of_the_others_is_computed(
    tmp_path: Path, stream: bool
) -> None:
    async with calls(tmp_path) as clients:
        first = clients.ask(stream=stream)
        call = await clients.hub.call()
        if stream:
            clients.hub.say(Piece(call.call_id, b"data: 1\n\n"))
        others = [clients.ask(stream=stream) for _ in range(3)]
        await clients.until_waiting(3)
        first.cancel()
        assert (await clients.hub._next(Abort)).call_id == call.call_id
        again = await clients.hub.call()
        assert again.seed == call.seed
        await clients.until_waiting(2)
        clients.hub.say(CallEnded(again.call_id, "ok", body=b'"again"'))
        answers = await asyncio.gather(*others)
        assert sorted("Idempotent-Replayed" in headers for _, headers, _ in answers) == [
            *(False, True, True)
        ]
        await clients.until_idle()


async def test_those_that_wait_have_the_error_of_the_first_and_later_ones_are_computed(
    tmp_path: Path,
) -> None:
    async with calls(tmp_path) as clients:
        first = clients.ask(**{"X-Request-Timeout": "0.05"})
        await clients.hub.call()
        second = clients.ask()
        await clients.until_waiting()
        assert error_of(await first) == error_of(await second) == (504, "deadline_exceeded", None)
        third = clients.ask()
        call = await clients.hub.call()
        body = b'{"error": {"message": "", "code": null, "param": null, "type": ""}}'
        fourth = clients.ask()
        await clients.until_waiting()
        clients.hub.say(CallEnded(call.call_id, "failed", 400, body))
        assert (await third)[::2] == (await fourth)[::2] == (400, body)
        fifth = clients.ask()
        call = await clients.hub.call()
        clients.hub.say(CallEnded(call.call_id, "ok", body=b"{}"))
        assert (await fifth)[0] == 200


async def test_who_waits_longer_than_its_timeout_is_told(tmp_path: Path) -> None:
    async with calls(tmp_path) as clients:
        first = clients.ask()
        call = await clients.hub.call()
        late = await clients.ask(**{"X-Request-Timeout": "0.05"})
        assert error_of(late) == (504, "deadline_exceeded", None)
        clients.hub.say(CallEnded(call.call_id, "ok", body=b"{}"))
        assert (await first)[0] == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_is_cancelled_is_cancelled_for_all_that_wait(
    tmp_path: Path, stream: bool
) -> None:
    async with staged(tmp_path) as clients:
        headers = {"Accept": "text/event-stream"} if stream else {}
        first = clients.invoke(**headers)
        run = await clients.hub._next(RunStages)
        second = clients.invoke(**headers)
        await clients.until_waiting()
        if stream:
            chunk = b'data: {"choices": [{"text": "there"}]}\n\n'
            clients.hub.say(Piece(run.request_id, chunk, 1))
            requests = clients.stack.router._requests
            await until(lambda: bool(requests._in_flight[run.request_id].release))
        clients.stack.router._requests._in_flight[run.request_id].cancel()
        assert (await clients.hub._next(EndRequest)).request_id == run.request_id
        assert error_of(await second)[:2] == (499, "request_cancelled")
        status, _, body = await first
        assert status == (200 if stream else 499)
        assert b"request_cancelled" in body


async def test_a_reply_that_is_too_large_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotent_replies, "REPLY_BYTES_MAX", 20)
    async with calls(tmp_path) as clients:
        for stream in (False, True):
            first = clients.ask(stream=stream, key=str(stream))
            call = await clients.hub.call()
            second = clients.ask(stream=stream, key=str(stream))
            await clients.until_waiting()

            def end(call: ServiceCall) -> None:
                if call.stream:
                    for _ in range(3):
                        clients.hub.say(Piece(call.call_id, b"data: 12345678\n\n"))
                clients.hub.say(
                    CallEnded(call.call_id, "ok", body=b"" if call.stream else b"1" * 21)
                )

            end(call)
            assert (await first)[0] == 200
            end(await clients.hub.call())
            assert "Idempotent-Replayed" not in (await second)[1]
            assert (await second)[2] == (await first)[2]
        assert clients.stack.router._replies._size == 0


CALLERS = {tenant: Caller(ServiceEntry(SERVICE, MODEL), tenant) for tenant in ("team-a", "team-b")}


async def remember(
    replies: IdempotentReplies, tenant: str, key: str, body: bytes = b"x" * 100
) -> None:
    with await replies.turn(CALLERS[tenant], {"Idempotency-Key": key}, ("", b""), 1) as turn:
        if turn.reply is None:
            turn.answer(WholeResponse(body), is_complete=True)


async def knows(replies: IdempotentReplies, tenant: str, key: str) -> bool:
    with await replies.turn(CALLERS[tenant], {"Idempotency-Key": key}, ("", b""), 1) as turn:
        return turn.reply is not None


async def test_a_flood_of_keys_forgets_those_of_its_tenant_only() -> None:
    replies = IdempotentReplies()
    await remember(replies, "team-b", "kept")
    for number in range(1000):
        await remember(replies, "team-a", str(number))
    group = replies._groups[SERVICE, "team-a"]
    assert len(group.replies) == idempotent_replies.REPLIES_MAX
    assert replies._size == 100 * (idempotent_replies.REPLIES_MAX + 1)
    assert await knows(replies, "team-a", "999")
    assert not await knows(replies, "team-a", "0")
    assert await knows(replies, "team-b", "kept")
    replies.keep(())
    assert (replies._size, replies._groups) == (0, {})
    replies.close()


async def test_keys_that_are_no_text_are_different_keys() -> None:
    replies = IdempotentReplies()
    keys = [raw.decode(errors="surrogateescape") for raw in (b"\xfe", b"\xff", b"\xff\xfe", b"?")]
    for number, key in enumerate(keys):
        assert not await knows(replies, "team-a", key)
        await remember(replies, "team-a", key, str(number).encode())
    for number, key in enumerate(keys):
        with await replies.turn(CALLERS["team-a"], {"Idempotency-Key": key}, ("", b""), 1) as turn:
            assert turn.reply is not None
            assert turn.reply.body == str(number).encode()
    replies.close()


async def test_a_replay_is_counted_apart_and_asks_for_no_replicas(tmp_path: Path) -> None:
    """Else clients that send requests again would have a service scaled, and its target met."""
    async with calls(tmp_path) as clients:
        first = clients.ask()
        call = await clients.hub.call()
        second = clients.ask()
        await clients.until_waiting()
        clients.hub.say(CallEnded(call.call_id, "ok", body=b"{}"))
        await asyncio.gather(first, second)
        for _ in range(3):
            await clients.ask()
        await clients.until_idle()
        metrics = clients.stack.router._metrics
        text = metrics.text({}).decode()
        report = metrics.of_service(SERVICE).counts.report(SERVICE, ())
    for outcome, count in (("ok", 1), ("replayed", 4)):
        assert f'requests_total{{outcome="{outcome}",service="{SERVICE}"}} {count}.0' in text
    assert (report.came - report.invalid, report.ended, sum(report.latency)) == (1, 1, 1)


async def test_a_replay_of_stages_is_counted_apart(tmp_path: Path) -> None:
    async with staged(tmp_path) as clients:
        first = clients.invoke()
        run = await clients.hub._next(RunStages)
        value = json.dumps({"completion": "there"}).encode()
        clients.hub.say(StageValue(run.request_id, 1, "reply", "two", value))
        assert_replayed(await first, await clients.invoke())
        await clients.until_idle()
        report = clients.stack.router._metrics.of_service(STAGED).counts.report(STAGED, ())
    assert (report.came, report.ended, report.invalid) == (2, 1, 1)


async def test_large_replies_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotent_replies, "BYTES_MAX", 1000)
    monkeypatch.setattr(idempotent_replies, "ALL_BYTES_MAX", 1500)
    replies = IdempotentReplies()
    for number in range(8):
        await remember(replies, "team-b", str(number))
    for number in range(30):
        await remember(replies, "team-a", str(number))
        assert replies._size <= 1500
    sizes = {tenant: group.size for (_, tenant), group in replies._groups.items()}
    assert sum(sizes.values()) == 1500
    assert min(sizes.values()) == 700, "the larger one forgets"
    replies.close()


async def test_replies_leave_memory_when_their_time_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(idempotent_replies, "REMEMBERED_S", 0.05)
    replies = IdempotentReplies()
    for tenant in CALLERS:
        await remember(replies, tenant, "k")
        await asyncio.sleep(0.01)
    await until(lambda: not replies._groups)
    assert (replies._size, replies._expiry) == (0, None)


@pytest.mark.parametrize("fresh", [False, True])
async def test_of_equal_requests_one_is_computed_at_a_time(fresh: bool) -> None:
    """Clients that leave, fail, and come back: nobody waits for ever, nothing is computed twice."""
    seed = secrets.randbits(32) if fresh else 0
    rng, replies = random.Random(seed), IdempotentReplies()
    computing: Counter[str] = Counter()
    answered: dict[str, bytes] = {}
    outcomes: Counter[str] = Counter()

    async def send(key: str, turns: int, end: str) -> None:
        caller, headers = CALLERS["team-a"], {"Idempotency-Key": key}
        with await replies.turn(caller, headers, ("", key.encode()), 60) as turn:
            if turn.reply is not None:
                assert turn.reply.body == answered[key]
                outcomes["replayed"] += 1
                return
            assert key not in answered, "a complete reply is remembered"
            computing[key] += 1
            assert computing[key] == 1
            try:
                for _ in range(turns):
                    await asyncio.sleep(0)
                if end == "fail":
                    raise lost_replica()
                if end == "answer":
                    answered[key] = key.encode()
                    turn.answer(WholeResponse(answered[key]), is_complete=True)
                    outcomes["computed"] += 1
            finally:
                computing[key] -= 1

    tasks = []
    for _ in range(400):
        key, end = str(rng.randrange(30)), rng.choice(["answer", "fail", "leave", "cancel"])
        task = asyncio.create_task(send(key, rng.randrange(6), end))
        tasks.append(task)
        if end == "cancel":
            asyncio.get_running_loop().call_later(rng.choice([0, 0, 0.001]), task.cancel)
        for _ in range(rng.randrange(3)):
            await asyncio.sleep(0)
    async with asyncio.timeout(30):
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    kinds = {type(one) for one in ended if isinstance(one, BaseException)}
    assert kinds <= {OpenAiError, asyncio.CancelledError}, (seed, ended)
    assert not replies._open
    assert outcomes["computed"] == len(answered)
    assert outcomes["replayed"] > outcomes["computed"]
    replies.close()
