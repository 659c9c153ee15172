"""Components that iterate, through router, hub and host: on their real sockets and processes."""

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_serving.stack import until
from tests.flowmesh_serving.stage_stack import StageStack, python, stage_stack, together

from flowmesh_core.protocol.framed_connection import FramedConnection

pytestmark = pytest.mark.slow

CODE = """
import os, time

class Refine:
    alive = 0

    def start(self, call):
        if call["q"].get("kind") == "refuse":
            raise ValueError("not this one")
        Refine.alive += 1
        return {"x": call["q"]["x"], "left": call["q"]["steps"], "together": 1, **call["q"]}

    def step(self, states):
        for state in states:
            if state.get("kind") == "exit" and state["left"] == 1:
                os._exit(3)
            if state.get("kind") == "hang" and state["left"] == 1:
                time.sleep(1000)
            if state.get("kind") == "raise" and state["left"] == 1:
                raise ValueError("poison")
            state["x"] = (state["x"] * 31 + state["left"]) % 1_000_003
            state["left"] -= 1
            state["together"] = max(state["together"], len(states))
        time.sleep(0.001)
        return [state["left"] == 0 for state in states]

    def finish(self, state):
        Refine.alive -= 1
        return {"x": state["x"], "together": state["together"], "alive": Refine.alive}

    def remaining(self, state):
        return state["left"]

def same(batch):
    return [call["value"] for call in batch]
"""


def refined(x: int, steps: int) -> int:
    """The result of a request alone."""
    for left in range(steps, 0, -1):
        x = (x * 31 + left) % 1_000_003
    return x


def service(**more: Any) -> dict[str, Any]:
    return {
        "components": {
            "refine": python(CODE, "Refine", batch={"max": 8}, **more),
            "show": python(CODE, "same", **more),
        },
        "stages": [
            {"name": "done", "component": "refine", "inputs": {"q": "request"}},
            {"name": "shown", "component": "show", "inputs": {"value": "done"}},
        ],
        "reply": {"out": "shown"},
    }


BOTH = {"w1": ["refine", "show"]}


async def ask(stack: StageStack, x: int, steps: int, **more: Any) -> tuple[int, Any]:
    status, body = await stack.ask({"x": x, "steps": steps, **more})
    return status, body["out"] if status == 200 else body["error"]


@pytest.mark.parametrize("trusted", [False, True])
async def test_requests_of_many_step_counts_have_the_replies_that_they_have_alone(
    tmp_path: Path, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWMESH_TRUSTED_CODE", "1")
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    rng = random.Random(seed)
    requests = [(rng.randrange(1000), rng.randint(1, 60)) for _ in range(60)]
    async with stage_stack(tmp_path, service(trusted=trusted), BOTH) as stack:
        replies: list[tuple[int, Any]] = []
        for group in range(0, len(requests), 20):
            replies += await together(*(ask(stack, *r) for r in requests[group : group + 20]))
        assert [status for status, _ in replies] == [200] * len(requests)
        assert [out["x"] for _, out in replies] == [refined(*r) for r in requests]
        assert max(out["together"] for _, out in replies) > 2
        assert (await ask(stack, 1, 1))[1]["alive"] == 0


async def test_no_frame_between_router_hub_and_host_is_sent_for_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: Counter[str] = Counter()
    timed = {"Ping", "Pong", "ComponentProfiles", "ReplicaLoads"}
    send, receive = FramedConnection.send, FramedConnection.data_received

    def counted_send(connection: Any, message: Any) -> None:
        sent[type(message).__name__] += 1
        send(connection, message)

    def counted_receive(connection: Any, data: bytes) -> None:
        on_message = connection._on_message

        def counted(message: Any) -> None:
            sent[f"got {type(message).__name__}"] += 1
            on_message(message)

        connection._on_message = counted
        try:
            receive(connection, data)
        finally:
            connection._on_message = on_message

    monkeypatch.setattr(FramedConnection, "send", counted_send)
    monkeypatch.setattr(FramedConnection, "data_received", counted_receive)
    async with stage_stack(tmp_path, service(), BOTH) as stack:
        frames = []
        (hub,) = stack.hubs.values()
        assert (await ask(stack, 7, 2))[0] == 200  # the hub learns the stages
        for steps in (1, 400):
            await until(lambda: not len(hub._stages))
            sent.clear()
            assert (await ask(stack, 7, steps))[1]["x"] == refined(7, steps)
            await until(lambda: not len(hub._stages))
            frames.append({k: n for k, n in sent.items() if k.removeprefix("got ") not in timed})
            timed_frames = sum(n for k, n in sent.items() if k.removeprefix("got ") in timed)
        assert frames[0]
        assert frames[0] == frames[1]
        assert timed_frames < 40, "these follow the clock"


@pytest.mark.parametrize("kind", ["raise", "exit", "hang", "refuse"])
async def test_a_request_that_spoils_a_step_fails_alone(tmp_path: Path, kind: str) -> None:
    async with stage_stack(tmp_path, service(), BOTH) as stack:
        assert (await ask(stack, 1, 3))[0] == 200  # measures a step
        good = [(x, 30 + x) for x in range(5)]
        *replies, (status, error) = await together(
            *(ask(stack, *one) for one in good), ask(stack, 0, 20, kind=kind)
        )
        assert [(status, out["x"]) for status, out in replies] == [
            (200, refined(*one)) for one in good
        ]
        assert (status, error["code"]) == (500, "user_code"), error
        assert (await ask(stack, 2, 3))[1]["x"] == refined(2, 3)
        await until(lambda: not any(len(hub._stages) for hub in stack.hubs.values()))


async def test_a_request_that_never_ends_is_ended_at_its_timeout_and_frees_its_place(
    tmp_path: Path,
) -> None:
    async with stage_stack(tmp_path, service(), BOTH) as stack:
        request = {"x": 1, "steps": -1}
        status, body = await stack.ask(request, **{"X-Request-Timeout": "1"})
        assert (status, body["error"]["code"]) == (504, "deadline_exceeded")
        assert (await ask(stack, 2, 3))[1]["x"] == refined(2, 3)


async def test_metrics_have_steps_as_batches_and_the_replica_the_time_of_whole_calls(
    tmp_path: Path,
) -> None:
    async with stage_stack(tmp_path, service(), BOTH) as stack:
        for _ in range(3):
            assert (await ask(stack, 1, 100))[0] == 200
        name = "flowmesh_service_batch_size"
        labels = '{component="refine",service="team-a/ask"}'
        async with asyncio.timeout(30):
            while f"{name}_count{labels} 300.0" not in await stack.metrics():
                pass
        replicas = stack.stack.router._staged._replicas.of("team-a/ask").values()
        (load,) = (r.load for r in replicas if r.load.component == "refine")
        assert load.call_lengths == (1.0,) * 16
        assert 0.1 < load.seconds[0] < 5.0, "a hundred steps"
