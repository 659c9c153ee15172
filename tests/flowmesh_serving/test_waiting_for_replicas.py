"""A service whose replicas are all gone: requests wait in a bounded queue, then 503."""

import asyncio
from pathlib import Path

import openai
import pytest
from tests.flowmesh_serving.stack import (
    ask,
    replica_of,
    services,
    serving_stack,
    start_host,
    until,
)
from tests.flowmesh_serving.stage_stack import SERVICE, python, stage_stack

from flowmesh_serving.router.settings import REPLICA_WAIT_S


async def test_requests_wait_for_a_replica_and_are_answered_when_one_comes(tmp_path: Path) -> None:
    async with serving_stack(tmp_path) as stack, stack.client as client:
        waiting = [asyncio.create_task(ask(client, f"q{n}")) for n in range(4)]
        await until(lambda: stack.router._calls.in_flight == 4)
        host = await start_host(tmp_path / "host")
        await stack.hub.admit(replica_of(host))
        answers = [(await task).choices[0].message.content for task in waiting]
        assert answers == ["q0", "q1", "q2", "q3"]
        await host.close()


async def test_no_more_wait_than_may_be_in_flight_and_the_others_are_refused_at_once(
    tmp_path: Path,
) -> None:
    listed = services(in_flight_max=3)
    async with serving_stack(tmp_path, listed, replica_wait_s=0.5) as stack, stack.client as client:
        waiting = [asyncio.create_task(ask(client, "one")) for _ in range(3)]
        await until(lambda: stack.router._calls.in_flight == 3)
        with pytest.raises(openai.RateLimitError, match="overloaded"):
            await ask(client, "one")
        assert not any(task.done() for task in waiting)
        for task in waiting:
            with pytest.raises(openai.InternalServerError, match="No replica") as refused:
                await task
            assert refused.value.response.headers["Retry-After"] == "5"
        assert stack.router._calls.in_flight == 0


@pytest.mark.slow
async def test_a_request_with_stages_waits_until_each_component_has_a_replica(
    tmp_path: Path,
) -> None:
    code = "def run(batch):\n    return [call['x'] for call in batch]"
    spec = {
        "components": {"one": python(code, "run")},
        "stages": [{"name": "done", "component": "one", "inputs": {"x": "request.x"}}],
        "reply": {"out": "done"},
    }
    async with stage_stack(tmp_path, spec, {}) as stack:
        in_flight = stack.stack.router._endpoints._in_flight
        status, body = await stack.ask({"x": 1}, **{"X-Request-Timeout": "0.05"})
        assert (status, body["error"]["code"]) == (503, "no_replica")
        asking = [asyncio.create_task(stack.ask({"x": n})) for n in range(4)]
        await until(lambda: in_flight.of(SERVICE) == {"team-a": 4})
        await stack.start_worker("w1", ["one"])
        assert await asyncio.gather(*asking) == [(200, {"out": n}) for n in range(4)]
        await until(lambda: not in_flight.of(SERVICE))


@pytest.mark.slow
async def test_a_request_waits_until_a_worker_has_an_affinity_group_as_a_whole(
    tmp_path: Path,
) -> None:
    code = "def run(batch):\n    return [call['x'] for call in batch]"
    own = {"affinity": "pair", "ownHost": True}
    spec = {
        "components": {name: python(code, "run", **own) for name in ("one", "two")},
        "stages": [
            {"name": "made", "component": "one", "inputs": {"x": "request.x"}},
            {"name": "used", "component": "two", "inputs": {"x": "made"}},
        ],
        "reply": {"out": "used"},
    }
    async with stage_stack(tmp_path, spec, {"half": ["one"], "other": ["two"]}) as stack:
        in_flight = stack.stack.router._endpoints._in_flight
        status, body = await stack.ask({"x": 1}, **{"X-Request-Timeout": "0.05"})
        assert (status, body["error"]["code"]) == (503, "no_replica")
        assert "one, two of the service" in body["error"]["message"]
        asking = [asyncio.create_task(stack.ask({"x": n})) for n in range(4)]
        await until(lambda: in_flight.of(SERVICE) == {"team-a": 4})
        assert not any(task.done() for task in asking)
        await stack.start_worker("whole", ["one", "two"])
        assert await asyncio.gather(*asking) == [(200, {"out": n}) for n in range(4)]


def test_requests_wait_for_five_seconds() -> None:
    assert REPLICA_WAIT_S == 5.0
