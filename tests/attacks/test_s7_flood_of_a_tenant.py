"""Attacker: T2, a tenant that may call a service which another tenant may call too.
Action: sends far more requests than the service takes, and keeps them open.
Must not happen: the other tenant, which has no request yet or few, is refused within its share.
"""

import asyncio
from pathlib import Path

import openai
import pytest
from tests.flowmesh_serving.raw_http import connected, head
from tests.flowmesh_serving.stack import (
    MODEL,
    SALTS,
    SERVICE,
    Stack,
    ask,
    echo_stack,
    services,
    until,
)

from flowmesh_core.protocol.router_services import ServiceEntry, ServiceToken, token_hash

OWNER = ServiceToken(token_hash("b"), "team-b")
BOTH = {**SALTS, "team-b": "salt-b"}


def listed(**more: object) -> tuple[ServiceEntry, ...]:
    return (ServiceEntry(SERVICE, MODEL, (*services()[0].tokens, OWNER), **more),)  # type: ignore[arg-type]


async def taken_by(
    stack: Stack, client: openai.AsyncOpenAI, namespace: str
) -> list[asyncio.Task[object]]:
    """Opens requests that do not end until one is refused."""
    counts = stack.router._endpoints._in_flight._by_tenant
    found: list[asyncio.Task[object]] = []
    while True:
        task = asyncio.create_task(ask(client, "wait"))
        before = counts[namespace]
        await until(lambda: task.done() or counts[namespace] > before)  # noqa: B023 - at once
        if task.done():
            with pytest.raises(openai.RateLimitError) as refused:
                await task
            assert refused.value.response.headers["Retry-After"] == "1"
            return found
        found.append(task)


@pytest.mark.parametrize(
    ("weights", "shares"),
    [({}, (6, 6)), ({"team-b": 3.0}, (3, 9))],
    ids=["equal", "weighted"],
)
async def test_a_flood_leaves_another_tenant_its_share(
    tmp_path: Path, weights: dict[str, float], shares: tuple[int, int]
) -> None:
    async with (
        echo_stack(tmp_path, listed=listed(weights=weights), salts=BOTH, calls_max=4) as stack,
        stack.client as attacker,
        stack.client_of("b") as owner,
    ):
        mine = await taken_by(stack, attacker, "team-a")
        others = await taken_by(stack, owner, "team-b")
        assert (len(mine), len(others)) == shares
        for task in (*mine, *others):
            task.cancel()
        await asyncio.gather(*mine, *others, return_exceptions=True)
        assert (await ask(owner, "one")).choices[0].message.content == "one"


async def test_bodies_that_do_not_arrive_count_as_requests(tmp_path: Path) -> None:
    async with (
        echo_stack(tmp_path, listed=listed(in_flight_max=4), salts=BOTH) as stack,
        connected(stack) as one,
        connected(stack) as two,
        connected(stack) as three,
        stack.client_of("b") as owner,
    ):
        for peer in (one, two):
            peer.send(head(1000) + b"{")
        await until(lambda: stack.router._endpoints._in_flight._by_tenant["team-a"] == 2)
        three.send(head(1000))
        answer = await three.answer()
        assert (answer.status, answer.error["code"]) == (429, "rate_limit_exceeded")
        assert "may have 2 requests in flight" in answer.error["message"]
        assert (await ask(owner, "one")).choices[0].message.content == "one"
