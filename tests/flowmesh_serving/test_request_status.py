"""The status of requests by their ids, and cancelling them: in time, once, and by their tenant."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.flowmesh_serving.hand_hub import HandHub, hand_hub, load
from tests.flowmesh_serving.raw_http import chat, connected, request
from tests.flowmesh_serving.stack import (
    MODEL,
    SERVICE,
    TOKEN,
    Stack,
    echo_stack,
    router_of,
    says,
    services,
    serving_stack,
    until,
)
from tests.flowmesh_serving.stage_stack import SERVICE as STAGED
from tests.flowmesh_serving.stage_stack import (
    URL,
    OneMachine,
    entry_of,
    python,
    service_of,
    stage_stack,
)

from flowmesh_core.protocol.router_services import ServiceEntry, ServiceToken, token_hash
from flowmesh_core.protocol.serving import (
    Abort,
    AskStages,
    CallEnded,
    EndRequest,
    Piece,
    ReplicaLoad,
    RunStages,
    StageProgress,
    StageReport,
    StageValue,
)
from flowmesh_serving.requests.request_table import ENDED_MAX
from flowmesh_serving.stages.stage_questions import StageQuestions
from flowmesh_serving.stages.stage_traces import ASKED_PER_S, StageTraces

OTHER = "fm-token-of-team-b"
TOKENS = (
    ServiceToken(token_hash(TOKEN), "team-a"),
    ServiceToken(token_hash(OTHER), "team-b"),
)
SPEC: dict[str, Any] = {
    "components": {"only": python("def same(batch):\n    return batch", "same")},
    "stages": [
        {"name": "one", "component": "only", "inputs": {"q": "request.q"}},
        {"name": "two", "component": "only", "inputs": {"q": "one"}},
    ],
    "reply": {"out": "two"},
}
REPLICA = ReplicaLoad(f"{STAGED}/only/r7/w", STAGED, (), 8, component="only")


@dataclass
class Http:
    """A client of one router."""

    stack: Stack
    session: aiohttp.ClientSession

    async def send(
        self, method: str, path: str, token: str = TOKEN, **more: Any
    ) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{self.stack.router.url}{path}"
        async with self.session.request(method, url, headers=headers, **more) as response:
            return response.status, await response.json()

    async def status(self, request_id: str, service: str = SERVICE, **more: Any) -> Any:
        code, body = await self.send("GET", f"/v1/services/{service}/requests/{request_id}", **more)
        return body if code == 200 else body["error"]["code"]

    async def listed(self, service: str = SERVICE, **more: Any) -> list[Any]:
        _, body = await self.send("GET", f"/v1/services/{service}/requests", **more)
        return list(body["data"])

    async def cancel(self, request_id: str, service: str = SERVICE, **more: Any) -> Any:
        path = f"/v1/services/{service}/requests/{request_id}"
        code, body = await self.send("DELETE", path, **more)
        return body if code == 200 else body["error"]["code"]

    async def one(self, service: str = SERVICE) -> str:
        """Waits for a request in flight and returns its id."""
        async with asyncio.timeout(30):
            while True:
                for shown in await self.listed(service):
                    if shown["state"] != "ended":
                        return str(shown["id"])


@contextlib.asynccontextmanager
async def http_of(stack: Stack) -> AsyncIterator[Http]:
    async with aiohttp.ClientSession() as session:
        yield Http(stack, session)


def posted(http: Http, text: str, **more: Any) -> "asyncio.Task[tuple[int, Any]]":
    body = {"model": MODEL, "messages": says(text), **more}
    return asyncio.create_task(http.send("POST", "/v1/chat/completions", json=body))


def in_flight(stack: Stack) -> int:
    return stack.router._invoke._in_flight._by_tenant.all


async def test_a_call_waits_runs_and_ends(tmp_path: Path) -> None:
    async with serving_stack(tmp_path) as stack, http_of(stack) as http:
        asking = posted(http, "one")
        waiting = await http.status(await http.one())
        assert (waiting["state"], waiting["outcome"], waiting["release"]) == ("waiting", None, None)
        async with hand_hub(tmp_path, load(f"{SERVICE}/llm/r3/0")) as hub:
            call = await hub.call()
            assert call.call_id == waiting["id"]
            running = await http.status(call.call_id)  # the hub is of a release that says nothing
            assert (running["state"], running["release"]) == ("running", "r3")
            assert "stages" not in running
            hub.say(CallEnded(call.call_id, "ok", body=b"{}"))
            assert await asking == (200, {})
            ended = await http.status(call.call_id)
    assert (ended["state"], ended["outcome"], ended["code"]) == ("ended", "ok", None)
    assert ended["created"] == waiting["created"] <= ended["ended"]
    assert ended.keys() == {
        *("id", "object", "service", "path", "state", "outcome", "code", "release", "created"),
        *("ended", "calls"),
    }
    assert ended["calls"] == [
        {"stage": None, "replica": f"{SERVICE}/llm/r3/0", "queue_s": None, "compute_s": None}
    ]
    assert (ended["service"], ended["path"]) == (SERVICE, "/v1/chat/completions")


async def test_a_call_in_the_queue_of_its_worker_waits(tmp_path: Path) -> None:
    async with echo_stack(tmp_path, calls_max=1) as stack, http_of(stack) as http:
        first = posted(http, "wait")
        await stack.until_load(running=1)
        running = await http.one()
        second = posted(http, "wait")
        await stack.until_load(queued=1)
        (queued,) = {r["id"] for r in await http.listed()} - {running}
        assert (await http.status(running))["state"] == "running"
        assert (await http.status(queued))["state"] == "waiting"
        for one in (running, queued):
            assert (await http.cancel(one))["outcome"] == "cancelled"
        assert [r[0] for r in await asyncio.gather(first, second)] == [499, 499]


async def test_a_cancelled_call_is_aborted_and_answered(tmp_path: Path) -> None:
    async with (
        router_of(tmp_path) as stack,
        hand_hub(tmp_path, load(f"{SERVICE}/llm/r1/0")) as hub,
        http_of(stack) as http,
    ):
        await stack.until_ready()
        asking = posted(http, "one")
        call = await hub.call()
        cancelled = await http.cancel(call.call_id)
        assert (cancelled["state"], cancelled["outcome"]) == ("ended", "cancelled")
        assert (await hub._next(Abort)).call_id == call.call_id
        status, body = await asking
        assert (status, body["error"]["code"]) == (499, "request_cancelled")
        assert await http.cancel(call.call_id) == cancelled, "again, nothing changes"
        assert await http.status(call.call_id) == cancelled
        await until(lambda: in_flight(stack) == 0)
        text = stack.router._metrics.text({}).decode()
    assert f'requests_total{{outcome="cancelled",service="{SERVICE}"}} 1.0' in text
    assert "refused_total{" not in text


async def test_a_request_that_waits_for_a_replica_is_cancelled_too(tmp_path: Path) -> None:
    async with serving_stack(tmp_path) as stack, http_of(stack) as http:
        asking = posted(http, "one")
        assert (await http.cancel(await http.one()))["outcome"] == "cancelled"
        assert (await asking)[0] == 499
        assert not stack.router._calls._pending


async def test_a_stream_that_is_cancelled_ends_with_an_error(tmp_path: Path) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client, http_of(stack) as http:
        stream = await client.chat.completions.create(
            model=MODEL, messages=says("one wait"), stream=True
        )
        request_id = stream.response.headers["X-Flowmesh-Request"]
        assert stream.response.headers["X-Flowmesh-Release"] == "r1"
        assert (await http.status(request_id))["state"] == "running"
        await http.cancel(request_id)
        lines = [line async for line in stream.response.aiter_lines()]
        await until(lambda: in_flight(stack) == 0)
    assert [line for line in lines if line][-1].startswith('data: {"error":{"message":"The request')
    assert "request_cancelled" in lines[-2] + lines[-1]


async def test_a_stream_that_nobody_reads_is_aborted_before_its_client_is_told(
    tmp_path: Path,
) -> None:
    async with (
        router_of(tmp_path) as stack,
        hand_hub(tmp_path, load(f"{SERVICE}/llm/r1/0")) as hub,
        http_of(stack) as http,
        connected(stack, limit=2048) as peer,
    ):
        await stack.until_ready()
        peer.send(request(chat("flood", stream=True)))
        call = await hub.call()
        hub.say(Piece(call.call_id, b"x" * 16_000_000))
        protocols = stack.router._connections._open
        await until(lambda: any(one._paused for one in protocols))
        await http.cancel(call.call_id)
        assert (await hub._next(Abort)).call_id == call.call_id


@pytest.mark.parametrize("came_whole", [True, False])
@pytest.mark.parametrize("seed", range(6))
async def test_the_answer_is_what_the_status_says_whenever_a_request_is_cancelled(
    tmp_path: Path, seed: int, came_whole: bool
) -> None:
    """The reply and ``DELETE`` arrive together, in both orders and with turns between."""
    async with (
        router_of(tmp_path, (entry_of(service_of(SPEC)),)) as stack,
        hand_hub(tmp_path, REPLICA, worker="w") as hub,
        http_of(stack) as http,
    ):
        await until(lambda: stack.router._replicas.count(STAGED) == 1)
        for turn in range(8):
            data = request(b'{"q": 1}', path=URL)
            async with connected(stack) as peer:
                peer.send(data if came_whole else data.replace(b"HTTP/1.1", b"HTTP/1.0", 1))
                run = await hub._next(RunStages)
                record = stack.router._requests._in_flight[run.request_id]
                value = StageValue(run.request_id, 1, "reply", "two", b"2")
                steps = [lambda v=value: hub.say(v), record.cancel]
                for step in steps if turn % 2 else reversed(steps):
                    step()
                    for _ in range(seed):
                        await asyncio.sleep(0)
                answer = await peer.answer()
            await until(lambda: in_flight(stack) == 0)
            shown = await http.status(run.request_id, STAGED)
            if shown["outcome"] == "ok":
                assert (answer.status, answer.body) == (200, {"out": 2})
            else:
                assert shown["outcome"] == "cancelled"
                assert (answer.status, answer.error["code"]) == (499, "request_cancelled")
            assert answer.headers["x-flowmesh-request"] == run.request_id
            assert answer.headers["x-flowmesh-release"] == "r7"
            assert (await hub._next(EndRequest)).request_id == run.request_id
        assert not stack.router._requests._in_flight
        assert not stack.router._staged._pending


@contextlib.asynccontextmanager
async def staged(folder: Path, **more: Any) -> AsyncIterator[tuple[Http, HandHub]]:
    """Yields a router with stages, and its only hub, which says how far requests are."""
    entry = entry_of(service_of(SPEC), tokens=TOKENS)
    async with (
        router_of(folder, (entry,)) as stack,
        hand_hub(folder, REPLICA, worker="w", reports_stages=True) as hub,
        http_of(stack) as http,
    ):
        await until(lambda: stack.router._replicas.count(STAGED) == 1)
        yield http, hub


async def test_stages_are_shown_as_their_hub_says(tmp_path: Path) -> None:
    async with staged(tmp_path) as (http, hub):
        asking = asyncio.create_task(http.send("POST", URL, json={"q": 1}))
        run = await hub._next(RunStages)

        async def shown(*progress: StageProgress) -> Any:
            showing = asyncio.create_task(http.status(run.request_id, STAGED))
            question = await hub._next(AskStages)
            assert question.request_id == run.request_id
            hub.say(StageReport(question.number, progress))
            found = await showing
            return found["state"], [s["state"] for s in found["stages"]]

        assert await shown() == ("waiting", ["waiting", "waiting"])
        queued, running, ended = (StageProgress("one", s) for s in ("queued", "running", "ended"))
        assert await shown(queued) == ("waiting", ["queued", "waiting"])
        assert await shown(running) == ("running", ["running", "waiting"])
        two = StageProgress("two", "running")
        assert await shown(ended, two) == ("running", ["ended", "running"])
        assert await shown(StageProgress("forged", "running")) == (
            "waiting",
            ["waiting", "waiting"],
        )
        hub.say(StageValue(run.request_id, 1, "reply", "two", b"2"))
        assert await asking == (200, {"out": 2})
        found = await http.status(run.request_id, STAGED)
        assert (found["state"], found["outcome"]) == ("ended", "ok")
        assert "stages" not in found


async def test_a_hub_that_does_not_say_leaves_stages_unknown(tmp_path: Path) -> None:
    async with staged(tmp_path) as (http, hub):
        asking = asyncio.create_task(http.send("POST", URL, json={"q": 1}))
        run = await hub._next(RunStages)
        found = await http.status(run.request_id, STAGED)
        assert [s["state"] for s in found["stages"]] == ["unknown", "unknown"]
        assert not http.stack.router._status._questions._waiting
        await http.cancel(run.request_id, STAGED)
        assert (await asking)[0] == 499


class TimedRouter(OneMachine):
    """A router that keeps the times of stages, as that of ``fmesh serve``."""

    def router(
        self, folder: Path, listed: tuple[ServiceEntry, ...]
    ) -> contextlib.AbstractAsyncContextManager[Stack]:
        return router_of(folder, listed, stage_times=True)


@pytest.mark.parametrize("timed", [False, True])
async def test_an_ended_request_says_where_its_stages_ran_and_for_how_long(
    tmp_path: Path, timed: bool
) -> None:
    code = "import time\ndef nap(batch):\n    time.sleep(0.05)\n    return batch"
    spec = {**SPEC, "components": {"only": python(code, "nap")}}
    machines = TimedRouter() if timed else OneMachine()
    async with (
        stage_stack(tmp_path, spec, {"w1": ["only"]}, machines) as stages,
        http_of(stages.stack) as http,
    ):
        assert (await stages.ask({"q": "secret"}))[0] == 200
        (request_id,) = [r["id"] for r in await http.listed(STAGED)]

        async def calls() -> list[dict[str, Any]]:
            return list((await http.status(request_id, STAGED))["calls"])

        async with asyncio.timeout(30):
            while timed and not (await calls())[1]["compute_s"]:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
        found = await calls()
        shown = await http.status(request_id, STAGED)
    assert [c["stage"] for c in found] == ["one", "two"]
    assert all(c["replica"].startswith(f"{STAGED}/only/") for c in found)
    if not timed:
        assert all(c["queue_s"] is None and c["compute_s"] is None for c in found)
        return
    assert all(0.05 <= c["compute_s"] < shown["ended"] - shown["created"] for c in found)
    assert "secret" not in json.dumps(shown)


async def test_hubs_are_asked_for_a_part_of_many_requests_that_end_at_once(tmp_path: Path) -> None:
    asked = int(ASKED_PER_S)
    now_s = [0.0]
    async with staged(tmp_path) as (http, hub):
        asking = asyncio.create_task(http.send("POST", URL, json={"q": 1}))
        run = await hub._next(RunStages)
        (pending,) = http.stack.router._staged._pending.values()
        traces = StageTraces(None, StageQuestions(), lambda: now_s[0])
        begun = [traces.begin(pending) for _ in range(2 * asked)]
        assert sum(one.question is not None for one in begun) == asked
        now_s[0] += 0.1
        later = [traces.begin(pending) for _ in range(2 * asked)]
        assert sum(one.question is not None for one in later) == asked // 10
        hub.say(StageValue(run.request_id, 1, "reply", "two", b"2"))
        assert (await asking)[0] == 200


@pytest.mark.slow
async def test_a_real_hub_says_how_far_stages_are(tmp_path: Path) -> None:
    spec = {
        "inputs": {"base": {"model": "smollm2-135m-instruct"}},
        "components": {
            "up": python("def up(batch):\n    return [c['q'].upper() for c in batch]", "up"),
            "writer": {"uses": "llm.generate", "inputs": {"model": "inputs.base"}},
        },
        "stages": [
            {"name": "one", "component": "up", "inputs": {"q": "request.q"}},
            {"name": "two", "component": "writer", "with": {"prompt": "{{ request.q }} {{ one }}"}},
        ],
        "reply": {"out": "two.completion"},
    }
    workers = {"w1": ["up"], "w2": ["writer"]}
    async with stage_stack(tmp_path, spec, workers) as stages, http_of(stages.stack) as http:
        asking = asyncio.create_task(stages.ask({"q": "wait"}))
        request_id = await http.one(STAGED)
        wanted = [{"name": "one", "state": "ended"}, {"name": "two", "state": "running"}]
        async with asyncio.timeout(30):
            while (await http.status(request_id, STAGED)).get("stages") != wanted:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
        shown = await http.cancel(request_id, STAGED)
        assert (shown["state"], shown["outcome"], shown["release"]) == ("ended", "cancelled", "r1")
        assert (await asking)[0] == 499
        await until(lambda: not any(len(hub._stages) for hub in stages.hubs.values()))
        assert await stages.ask({"q": "again"}) == (200, {"out": "again AGAIN"})


@pytest.mark.parametrize(
    "progress",
    [
        StageProgress("one", "gone"),
        StageProgress("one", "ended", age_s=float("nan")),
        StageProgress("one", "ended", queue_s=-1.0),
        StageProgress("one", "ended", compute_s=float("inf")),
    ],
)
async def test_a_hub_that_says_what_none_says_is_disconnected(
    tmp_path: Path, progress: StageProgress
) -> None:
    async with staged(tmp_path) as (http, hub):
        asking = asyncio.create_task(http.send("POST", URL, json={"q": 1}))
        run = await hub._next(RunStages)
        showing = asyncio.create_task(http.status(run.request_id, STAGED))
        hub.say(StageReport((await hub._next(AskStages)).number, (progress,)))
        assert "not allow" in await hub.refusal()
        assert (await showing)["id"] == run.request_id
        assert (await asking)[0] == 503


async def test_another_tenant_neither_sees_nor_cancels_a_request(tmp_path: Path) -> None:
    async with staged(tmp_path) as (http, hub):
        asking = asyncio.create_task(http.send("POST", URL, json={"q": 1}))
        run = await hub._next(RunStages)
        for ask in (http.status, http.cancel):
            assert await ask(run.request_id, STAGED, token=OTHER) == "request_not_found"
            assert await ask(run.request_id, STAGED, token="guessed") == "invalid_api_key"
            assert await ask(run.request_id, "team-a/other") == "request_not_found"
        assert await http.listed(STAGED, token=OTHER) == []
        assert [r["id"] for r in await http.listed(STAGED)] == [run.request_id]
        hub.say(StageValue(run.request_id, 1, "reply", "two", b"2"))
        assert await asking == (200, {"out": 2})
        assert await http.status(run.request_id, STAGED, token=OTHER) == "request_not_found"


async def test_an_unknown_id_is_404_in_few_words(tmp_path: Path) -> None:
    async with serving_stack(tmp_path) as stack, http_of(stack) as http:
        for one in ("none", "x" * 5000, "%0d%0aX-Own:%201", "%F0%9F%92%A5" * 100):
            path = f"/v1/services/{SERVICE}/requests/{one}"
            status, body = await http.send("GET", path)
            assert (status, body["error"]["code"]) == (404, "request_not_found")
            assert "Other routers have their own" in body["error"]["message"]
            assert len(body["error"]["message"]) < 400


async def test_a_flood_forgets_the_requests_of_its_tenant_only(tmp_path: Path) -> None:
    listed = services(tokens=TOKENS)
    salts = {"team-a": "a", "team-b": "b"}
    async with (
        echo_stack(tmp_path, listed=listed, salts=salts) as stack,
        http_of(stack) as http,
    ):
        body = {"model": MODEL, "messages": says("one")}
        await http.send("POST", "/v1/chat/completions", OTHER, json=body)
        (kept,) = await http.listed(token=OTHER)
        for _ in range(ENDED_MAX + 20):
            await http.send("POST", "/v1/chat/completions", json=body)
        found = await http.listed()
        assert len(found) == ENDED_MAX
        assert [r["created"] for r in found] == sorted(r["created"] for r in found)[::-1]
        assert await http.status(kept["id"], token=OTHER) == kept
        stack.router._requests.keep(())
        assert await http.listed() == []


async def test_clients_that_ask_about_one_request_have_its_hub_asked_once(tmp_path: Path) -> None:
    async with staged(tmp_path) as (http, hub):
        asking = asyncio.create_task(http.send("POST", URL, json={"q": 1}))
        run = await hub._next(RunStages)
        showing = [asyncio.create_task(http.status(run.request_id, STAGED)) for _ in range(9)]
        question = await hub._next(AskStages)
        questions = http.stack.router._status._questions
        (waiting,) = questions._waiting.values()
        await until(lambda: len(waiting.answered._callbacks or ()) == 9)
        showing.pop(0).cancel()  # the first client leaves, and the others still get the answer
        await asyncio.sleep(0)
        hub.say(StageReport(question.number, (StageProgress("one", "running"),)))
        states = [found["stages"][0]["state"] for found in await asyncio.gather(*showing)]
        assert states == ["running"] * 8
        assert question.number == 1
        assert not questions._waiting
        assert not questions._of_clients
        hub.say(StageReport(1, (StageProgress("one", "running"),)))  # late: ignored
        hub.say(StageValue(run.request_id, 1, "reply", "two", b"2"))
        assert await asking == (200, {"out": 2})


async def test_questions_of_a_flood_of_clients_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowmesh_serving.stages.stage_questions.STATUS_MAX", 3)
    monkeypatch.setattr("flowmesh_serving.stages.stage_questions._WITHIN_S", 30.0)
    async with staged(tmp_path) as (http, hub):
        asking, runs = [], []
        for _ in range(5):
            asking.append(asyncio.create_task(http.send("POST", URL, json={"q": 1})))
            runs.append(await hub._next(RunStages))
        showing = [asyncio.create_task(http.status(run.request_id, STAGED)) for run in runs]
        await until(lambda: sum(one.done() for one in showing) == 2)
        questions = http.stack.router._status._questions
        assert sorted(questions._waiting) == [1, 2, 3]
        running = (StageProgress("one", "running"),)
        hub.say(*(StageReport(number, running) for number in (1, 2, 3)))
        states = [found["stages"][0]["state"] for found in await asyncio.gather(*showing)]
        assert Counter(states) == {"unknown": 2, "running": 3}
        hub.say(*(StageValue(run.request_id, 1, "reply", "two", b"2") for run in runs))
        assert await asyncio.gather(*asking) == [(200, {"out": 2})] * 5


async def test_requests_that_end_leave_room_for_clients_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A router that keeps the times of stages asks about each request at its end."""
    monkeypatch.setattr("flowmesh_serving.stages.stage_questions.STATUS_MAX", 3)
    monkeypatch.setattr("flowmesh_serving.stages.stage_questions._WITHIN_S", 30.0)
    entry = entry_of(service_of(SPEC), tokens=TOKENS)
    async with (
        router_of(tmp_path, (entry,), stage_times=True) as stack,
        hand_hub(tmp_path, REPLICA, worker="w", reports_stages=True) as hub,
        http_of(stack) as http,
    ):
        await until(lambda: stack.router._replicas.count(STAGED) == 1)
        for _ in range(5):
            asking = asyncio.create_task(http.send("POST", URL, json={"q": 1}))
            run = await hub._next(RunStages)
            hub.say(StageValue(run.request_id, 1, "reply", "two", b"2"))
            assert await asking == (200, {"out": 2})
        asking = asyncio.create_task(http.send("POST", URL, json={"q": 1}))
        run = await hub._next(RunStages)
        showing = asyncio.create_task(http.status(run.request_id, STAGED))
        async with asyncio.timeout(30):
            while (question := await hub._next(AskStages)).request_id != run.request_id:
                pass
        hub.say(StageReport(question.number, (StageProgress("one", "running"),)))
        assert (await showing)["stages"][0]["state"] == "running"
        asking.cancel()


async def test_a_release_that_a_hub_forges_writes_no_header(tmp_path: Path) -> None:
    forged = load(f"{SERVICE}/llm/r1\r\nX-Own: 1/0")
    async with (
        router_of(tmp_path) as stack,
        hand_hub(tmp_path, forged) as hub,
        connected(stack) as peer,
    ):
        await stack.until_ready()
        peer.send(request(chat("one")))
        call = await hub.call()
        hub.say(CallEnded(call.call_id, "ok", body=json.dumps({}).encode()))
        answer = await peer.answer()
    assert answer.status == 200
    assert not {"x-own", "x-flowmesh-release"} & answer.headers.keys()
