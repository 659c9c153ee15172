"""Requests to services with stages: their replies equal plain Python composition."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import psutil
import pytest
from tests.flowmesh_serving.stack import until
from tests.flowmesh_serving.stage_stack import (
    SERVICE,
    URL,
    python,
    stage_stack,
    together,
    without_peers,
)

if TYPE_CHECKING:
    from flowmesh_core.protocol.serving import ComponentCall

pytestmark = pytest.mark.slow

CODE = """
def upper(batch):
    return [{"text": call["text"].upper(), "n": len(call["text"])} for call in batch]

def double(batch):
    return [{"text": call["text"] * 2} for call in batch]

def join(batch):
    return [{"text": f"{call['a']['text']}+{call['b']['text']}:{call['sep']}", "n": call["a"]["n"]}
            for call in batch]
"""
CHAT = {"messages": [{"role": "user", "content": "{{ both.text }} {{ request.end }}"}]}


def diamond(**more: Any) -> dict[str, Any]:
    """Returns two branches that meet, and an engine that repeats."""
    return {
        "inputs": {"base": {"model": "smollm2-135m-instruct"}},
        "components": {
            "up": python(CODE, "upper", **more),
            "twice": python(CODE, "double", **more),
            "meet": python(CODE, "join", **more),
            "writer": {"uses": "llm.generate", "inputs": {"model": "inputs.base"}},
        },
        "stages": [
            {"name": "a", "component": "up", "inputs": {"text": "request.q"}},
            {"name": "b", "component": "twice", "inputs": {"text": "request.q"}},
            {
                "name": "both",
                "component": "meet",
                "inputs": {"a": "a", "b": "b"},
                "with": {"sep": "{{ request.sep }}"},
            },
            {"name": "answer", "component": "writer", "stream": True, "with": CHAT},
        ],
        "reply": {"said": "answer.completion", "n": "both.n", "all": "both"},
    }


def composed(request: dict[str, str]) -> dict[str, Any]:
    """Returns the reply by plain composition of the same functions."""
    module: dict[str, Any] = {}
    exec(CODE, module)
    call = {"text": request["q"]}
    a, b = module["upper"]([call])[0], module["double"]([call])[0]
    both = module["join"]([{"a": a, "b": b, "sep": request["sep"]}])[0]
    said = " ".join(f"{both['text']} {request['end']}".split())
    return {"said": said, "n": both["n"], "all": both}


REQUESTS = [{"q": f"question {i}", "sep": str(i), "end": "of it"} for i in range(20)]
ALL = ["up", "twice", "meet", "writer"]


@pytest.mark.parametrize(
    ("workers", "tier"),
    [
        ({"w1": ALL}, "reference"),
        ({"w1": ["up", "twice"], "w2": ["meet", "writer"]}, "peer"),
        ({"w1": ["up", "twice"], "w2": ["meet", "writer"]}, "relay"),
    ],
)
async def test_a_reply_equals_plain_composition(
    tmp_path: Path, workers: dict[str, list[str]], tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tier == "relay":
        without_peers(monkeypatch)
    async with stage_stack(tmp_path, diamond(), workers) as stack:
        for request in REQUESTS:
            assert await stack.ask(request) == (200, composed(request))
        events = await stack.events(REQUESTS[0])
        wanted = composed(REQUESTS[0])
        assert events[-1] == ("reply", events[-1][1])
        assert json.loads(events[-1][1])["all"] == wanted["all"]
        words = [json.loads(data)["text"] for name, data in events if name == "text"]
        assert words == wanted["said"].split()
        await until(lambda: not any(len(hub._stages) for hub in stack.hubs.values()))
        assert all(hub._stages._value_bytes == 0 for hub in stack.hubs.values())
        assert await stack.until_passed(tier)


@pytest.mark.parametrize(
    "workers", [{"w1": ALL}, {"w1": ["up", "twice"], "w2": ["meet", "writer"]}]
)
async def test_each_call_of_a_component_is_counted_once(
    tmp_path: Path, workers: dict[str, list[str]]
) -> None:
    async with stage_stack(tmp_path, diamond(), workers) as stack:
        for few in (REQUESTS[:10], REQUESTS[10:]):  # the engine takes 12 at once
            answers = await asyncio.gather(*map(stack.ask, few))
            assert {status for status, _ in answers} == {200}
        names = ("queue_seconds_count", "compute_seconds_count", "batch_size_sum")
        wanted = {
            f'flowmesh_service_{name}{{component="{one}",service="{SERVICE}"}} {len(REQUESTS)}.0'
            for name in names
            for one in ALL
            if (name, one) != ("batch_size_sum", "writer")
        }
        async with asyncio.timeout(30):
            while not wanted <= set((await stack.metrics()).splitlines()):
                pass
        lines = (await stack.metrics()).splitlines()
        assert any("batch_cap" in line and 'component="up"' in line for line in lines)


async def test_a_stream_that_breaks_off_ends_with_an_error_and_counts_as_failed(
    tmp_path: Path,
) -> None:
    async with stage_stack(tmp_path, diamond(), {"w1": ALL}, timeout_s=1.0) as stack:
        events = await stack.events({"q": "question", "sep": "1", "end": "wait"})
        assert {name for name, _ in events[:-1]} == {"text"}
        name, data = events[-1]
        assert (name, json.loads(data)["error"]["code"]) == ("error", "deadline_exceeded")
        shown = await stack.metrics()
        assert 'service_requests_total{outcome="failed",service="team-a/ask"} 1.0' in shown


FRAGILE = """
import os, time

def compute(batch):
    results = []
    for call in batch:
        if call["q"] == "raise":
            raise ValueError("no such word")
        if call["q"] == "exit":
            os._exit(3)
        if call["q"] == "hang":
            time.sleep(1000)
        if call["q"] == "size":
            results.append({"n": len(batch)})
        elif call["q"] == "odd":
            results.append(object())
        else:
            results.append({"said": call["q"], "pid": os.getpid()})
    return results
"""


def one_stage(**more: Any) -> dict[str, Any]:
    """Returns a service of one component, whose behaviour a request chooses."""
    return {
        "components": {"only": python(FRAGILE, "compute")},
        "stages": [{"name": "one", "component": "only", "inputs": {"q": "request.q"}}],
        "reply": {"out": "one"},
        **more,
    }


async def test_a_call_that_raises_fails_alone_and_shows_its_owner_the_line(tmp_path: Path) -> None:
    async with stage_stack(tmp_path, one_stage(), {"w1": ["only"]}) as stack:
        asked = [{"q": "raise" if i == 3 else f"q{i}"} for i in range(8)]
        replies = await together(*(stack.ask(request) for request in asked))
        for number, (request, (status, body)) in enumerate(zip(asked, replies, strict=True)):
            if number == 3:
                assert status == 500
                assert body["error"]["code"] == "user_code"
                assert 'raise ValueError("no such word")' in body["error"]["message"]
            else:
                assert (status, body["out"]["said"]) == (200, request["q"])
        status, body = await stack.ask({"q": "odd"})
        assert (status, "not JSON" in body["error"]["message"]) == (500, True)


STEPS = """
def step(batch):
    for call in batch:
        if call["x"]["fail"] == call["name"]:
            raise ValueError("not this one")
    return [{**call["x"], "at": call["x"]["at"] + call["name"]} for call in batch]
"""


def chain(*names: str) -> dict[str, Any]:
    """Returns stages one after the other; a request says which of them fails."""
    inputs = dict(zip(names, ("request.x", *names), strict=False))
    return {
        "components": {name: python(STEPS, "step") for name in names},
        "stages": [
            {"name": name, "component": name, "inputs": {"x": source}, "with": {"name": name}}
            for name, source in inputs.items()
        ],
        "reply": {"x": names[-1]},
    }


async def test_a_chain_in_one_host_is_one_call_and_names_the_stage_that_fails(
    tmp_path: Path,
) -> None:
    names = ["a", "b", "c"]
    async with stage_stack(tmp_path, chain(*names), {"w1": names}) as stack:
        hub, host = stack.hubs["w1"], stack.hosts["w1", "a"]
        calls: list[ComponentCall] = []
        instance = hub._instances[str(host.socket)]
        send = instance._send
        instance._send = lambda message: (calls.append(message), send(message))[1]  # type: ignore[method-assign]
        for failing in ("", *names):
            status, body = await stack.ask({"x": {"at": "", "fail": failing}})
            (call,) = calls
            assert [one.component for one in (call, *call.then)] == names
            calls.clear()
            if not failing:
                assert (status, body["x"]["at"]) == (200, "abc")
                continue
            assert status == 500
            assert f"component {failing} failed" in body["error"]["message"]
            assert body["error"]["message"].endswith(f"(stage {failing})")
        await until(lambda: not len(hub._stages))
        loads = {load.component: load.running for load in hub._loads()}
        assert loads == dict.fromkeys(names, 0)


async def test_code_that_ends_its_process_or_hangs_fails_alone_and_is_started_again(
    tmp_path: Path,
) -> None:
    async with stage_stack(tmp_path, one_stage(), {"w1": ["only"]}) as stack:
        assert (await stack.ask({"q": "a"}))[0] == 200  # measures how long a batch takes
        for wrong in ({"q": "exit"}, {"q": "hang"}):
            first, (status, body) = await together(
                stack.ask({"q": "a"}), stack.ask(wrong, **{"X-Request-Timeout": "2"})
            )
            assert first[0] == 200
            assert status in (500, 504), body
            status, body = await stack.ask({"q": "after"})
            assert (status, body["out"]["said"]) == (200, "after")
        host = psutil.Process(stack.hosts["w1", "only"].pid)
        code = host.children(recursive=True)
        for process in code:
            process.kill()  # while it is idle: no request is at fault
        await asyncio.to_thread(psutil.wait_procs, code, 10)
        assert (await stack.ask({"q": "next"}))[0] == 200


async def test_wrong_requests_have_the_routers_errors(tmp_path: Path) -> None:
    limits = {"request_bytes_max": 1000}
    async with stage_stack(tmp_path, one_stage(), {"w1": ["only"]}, **limits) as stack:
        status, body = await stack.ask({"other": 1})
        assert (status, body["error"]["code"], body["error"]["param"]) == (
            400,
            "missing_field",
            "q",
        )
        status, body = await stack.ask([1])
        assert (status, body["error"]["code"]) == (400, "invalid_json")
        status, body = await stack.ask({"q": "x" * 2000})
        assert (status, body["error"]["code"]) == (413, "request_too_large")
        status, body = await stack.ask({"q": "x"}, **{"X-Flowmesh-Priority": "high"})
        assert (status, body["error"]["param"]) == (400, "X-Flowmesh-Priority")
        report = stack.stack.router._metrics.counts()[SERVICE].report(SERVICE, ())
        assert (report.came, report.invalid, report.refused) == (4, 4, 0)
        other = f"{stack.stack.router.url}/v1/services/team-a/other:invoke"
        async with stack.session.post(other, json={"q": "x"}) as response:
            assert response.status == 404
        async with stack.session.post(
            f"{stack.stack.router.url}/v1/chat/completions",
            json={"model": "ask", "messages": [{"role": "user", "content": "x"}]},
        ) as response:
            assert (response.status, ":invoke" in await response.text()) == (404, True)
        async with aiohttp.ClientSession() as stranger:
            url = f"{stack.stack.router.url}{URL}"
            async with stranger.post(url, json={"q": "x"}) as response:
                assert response.status == 401


async def test_requests_go_on_with_the_other_worker_when_one_is_lost(tmp_path: Path) -> None:
    workers = {"w1": ["only"], "w2": ["only"]}
    async with stage_stack(tmp_path, one_stage(), workers) as stack:
        asking = [asyncio.create_task(stack.ask({"q": f"q{i}"})) for i in range(40)]
        await until(lambda: any(len(hub._stages) for hub in stack.hubs.values()))
        os.kill(stack.hosts["w1", "only"].pid, signal.SIGKILL)
        replies = await asyncio.gather(*asking)
        assert [status for status, _ in replies] == [200] * 40
        assert [body["out"]["said"] for _, body in replies] == [f"q{i}" for i in range(40)]
        await until(lambda: not any(len(hub._stages) for hub in stack.hubs.values()))


async def test_a_request_that_cannot_be_in_time_is_refused_by_the_measured_profile(
    tmp_path: Path,
) -> None:
    slow = "import time\ndef compute(batch):\n    time.sleep(0.1)\n    return [1] * len(batch)\n"
    spec = one_stage(components={"only": python(slow, "compute", batch={"max": 1})})
    entry = {"slo_s": 0.25, "on_late": "refuse"}
    async with stage_stack(tmp_path, spec, {"w1": ["only"]}, **entry) as stack:
        assert (await stack.ask({"q": "x"}))[0] == 200  # measures it
        replies = stack.stack.router._staged._replicas
        await until(lambda: next(iter(replies.of(SERVICE).values())).load.seconds[:1] > (0.05,))
        found = await together(*(stack.ask({"q": "x"}) for _ in range(12)))
        refused = [body["error"] for status, body in found if status == 429]
        assert refused
        assert all("would come too late" in error["message"] for error in refused)
        assert (await stack.ask({"q": "x"}))[0] == 200


async def test_trusted_code_runs_only_where_the_workers_owner_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = diamond(trusted=True)
    with pytest.raises(AssertionError, match="which this worker does not allow"):
        async with stage_stack(tmp_path / "a", spec, {"w1": ALL}):
            pass
    monkeypatch.setenv("FLOWMESH_TRUSTED_CODE", "1")
    async with stage_stack(tmp_path / "b", spec, {"w1": ALL}) as stack:
        replies = await together(*(stack.ask(request) for request in REQUESTS[:8]))
        assert replies == [(200, composed(request)) for request in REQUESTS[:8]]
