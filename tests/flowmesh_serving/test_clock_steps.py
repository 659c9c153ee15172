"""The wall clock is set while calls run: deadlines and queues do not follow it."""

import asyncio
import time
from pathlib import Path

import openai
import pytest
from tests.flowmesh_serving.hand_hub import hand_hub, load
from tests.flowmesh_serving.stack import ask, echo_stack, serving_stack, until

from flowmesh_core.protocol.serving import CallEnded

HOUR_S = 3600.0


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S], ids=["forward", "back"])
async def test_a_step_of_the_clock_neither_ends_a_call_nor_lets_one_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    async with echo_stack(tmp_path, calls_max=1) as stack, stack.client as client:
        budget = {"X-Request-Timeout": "1.5"}
        late = asyncio.create_task(ask(client, "wait", extra_headers=budget))
        await stack.until_load(running=1)
        queued = asyncio.create_task(ask(client, "two"))
        await stack.until_load(queued=1)
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + step_s)
        with pytest.raises(openai.InternalServerError, match="longer than its timeout"):
            await late  # after its budget, as without the step
        assert (await queued).choices[0].message.content == "two"


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S], ids=["forward", "back"])
async def test_a_call_that_waits_for_a_replica_keeps_its_budget_when_the_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    async with serving_stack(tmp_path) as stack, stack.client as client:
        waiting = asyncio.create_task(ask(client, "one", extra_headers={"X-Request-Timeout": "60"}))
        await until(lambda: stack.router._calls.in_flight == 1)
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + step_s)
        async with hand_hub(tmp_path, load()) as hub:
            call = await hub.call()
            assert 50_000 < call.budget_ms <= 60_000
            body = b'{"id": "x", "object": "x", "choices": []}'
            hub.say(CallEnded(call.call_id, "ok", body=body))
            await waiting


async def test_a_call_takes_what_is_left_of_its_budget_to_the_next_replica(tmp_path: Path) -> None:
    async with (
        serving_stack(tmp_path, replica_wait_s=5.0) as stack,
        stack.client as client,
    ):
        waiting = asyncio.create_task(ask(client, "one", extra_headers={"X-Request-Timeout": "9"}))
        began_s = asyncio.get_running_loop().time()
        async with hand_hub(tmp_path, load(), worker="first") as first:
            call = await first.call()
            assert call.budget_ms <= 9000
            called_s = asyncio.get_running_loop().time()
            await until(lambda: asyncio.get_running_loop().time() - called_s > 0.02)
            waited_ms = (asyncio.get_running_loop().time() - began_s) * 1000
        async with hand_hub(tmp_path, load(), worker="second") as second:
            again = await second.call()
            assert again.call_id == call.call_id
            assert again.budget_ms < call.budget_ms
            assert again.budget_ms >= 9000 - waited_ms - 5000
            body = b'{"id": "x", "object": "x", "choices": []}'
            second.say(CallEnded(call.call_id, "ok", body=body))
            await waiting
