"""Targets of tokens between router, hub and host: how many calls run, and which are refused."""

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
from tests.flowmesh_serving.stack import (
    MODEL,
    Stack,
    ask,
    echo_stack,
    replica_of,
    says,
    serving_stack,
    start_host,
    until,
)


def calls_at_once(stack: Stack) -> int:
    return stack.hub._loads()[0].calls_max


async def test_as_many_calls_run_as_the_strictest_target_allows(tmp_path: Path) -> None:
    async with serving_stack(tmp_path) as stack:
        host = await start_host(tmp_path / "host")
        await stack.hub.admit(replica_of(host, 1))
        assert calls_at_once(stack) == 4  # what the engine can
        for number, tpot_s in ((2, 0.02), (3, 0.03)):
            admitted = replica_of(host, number)
            await stack.hub.admit(msgspec.structs.replace(admitted, tpot_s=tpot_s))
            await until(lambda: calls_at_once(stack) == 2)
        stack.hub.withdraw(replica_of(host, 2).replica_id)
        await until(lambda: calls_at_once(stack) == 3)
        stack.hub.withdraw(replica_of(host, 3).replica_id)
        await until(lambda: calls_at_once(stack) == 4)
        await host.close()


async def test_calls_above_the_target_wait_and_begin_when_more_may_run(tmp_path: Path) -> None:
    async with serving_stack(tmp_path) as stack:
        host = await start_host(tmp_path / "host")
        admitted = replica_of(host)
        await stack.hub.admit(msgspec.structs.replace(admitted, tpot_s=0.01))
        await until(lambda: calls_at_once(stack) == 1)
        await stack.until_ready()
        async with stack.client as client:
            tasks = [asyncio.create_task(ask(client, "wait")) for _ in range(3)]
            await stack.until_load(running=1, queued=2)
            await stack.hub.admit(admitted)
            await stack.until_load(running=3)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await host.close()


@pytest.mark.parametrize("streams", [{}, {"stream": True}])
async def test_a_call_that_an_engine_does_not_take_is_refused_as_overload(
    tmp_path: Path, streams: dict[str, Any]
) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        assert (await ask(client, "late")).choices[0].message.content == "late"
        (replica,) = stack.hub._replicas.values()
        await stack.hub.admit(msgspec.structs.replace(replica.admitted, ttft_s=1.0))
        with pytest.raises(openai.RateLimitError, match="overloaded") as refused:
            await client.chat.completions.create(model=MODEL, messages=says("late"), **streams)
        assert refused.value.response.headers["Retry-After"] == "1"
        assert (await ask(client, "in time")).choices[0].message.content == "in time"


async def test_a_call_that_waits_for_a_place_too_long_for_its_first_token_is_refused(
    tmp_path: Path,
) -> None:
    async with echo_stack(tmp_path, calls_max=1) as stack, stack.client as client:
        (replica,) = stack.hub._replicas.values()
        await stack.hub.admit(msgspec.structs.replace(replica.admitted, ttft_s=0.2))
        first = asyncio.create_task(ask(client, "wait"))
        await stack.until_load(running=1)
        began_s = time.monotonic()
        with pytest.raises(openai.RateLimitError, match="overloaded"):
            await ask(client, "second")
        assert time.monotonic() - began_s >= 0.18
        assert not first.done()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
