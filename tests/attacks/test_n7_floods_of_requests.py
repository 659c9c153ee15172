"""Attacker: T2, a tenant with a token of its own namespace, or a peer without one.
Action: sends requests, plans and watches at fifty times the rates of its quota.
Must not happen: more of them are served than the quota allows, another tenant's are refused, or the
control plane refuses as many as the attacker's connections can send.
"""

import asyncio
import logging
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.attacks.tenants import ATTACKER, OWNER, Tenants, tenants
from tests.flowmesh_control.fabric import workflow

from flowmesh_api.v1.quotas import Quota
from flowmesh_control.quotas.refusal_pace import REFUSALS_PER_S

BURST = 20
PLANS = 3
QUOTA = Quota(
    name="every",
    namespaces=("*",),
    requests_per_second=0.1,
    request_burst=BURST,
    plans_per_minute=PLANS,
)
STEP = {"steps": [{"name": "s", "uses": "test.noop", "with": {"value": "x"}}]}


async def test_a_flood_is_refused_and_another_tenant_is_served(tmp_path: Path) -> None:
    async with tenants(tmp_path) as there:
        await there.control.services.quotas.replace_all([QUOTA], {"team-a": {}, "team-b": {}})
        flood = Counter[int]()
        for _ in range(50):
            status, body = await there.answer(ATTACKER, "/v1/quota?namespace=team-b")
            flood[status] += 1
        assert flood == {200: BURST, 429: 50 - BURST}
        assert b"namespace team-b sends more than 0.1 requests a second" in body
        mine = [await there.answer(OWNER, "/v1/quota?namespace=team-a") for _ in range(BURST)]
        assert {status for status, _ in mine} == {200}


async def test_plan_requests_have_a_separate_rate_limit_and_the_answer_shows_when_to_retry(
    tmp_path: Path,
) -> None:
    async with tenants(tmp_path) as there:
        await there.control.services.quotas.replace_all([QUOTA], {"team-b": {}})
        url = f"{there.control.url}/v1/plan"
        headers = {"Authorization": f"Bearer {ATTACKER}-token"}
        body = {"document": workflow("w", STEP), "namespace": "team-b"}
        statuses = []
        for _ in range(PLANS + 1):
            async with there.http.post(url, json=body, headers=headers) as response:
                statuses.append(response.status)
                retry_after = response.headers.get("Retry-After", "")
        assert statuses == [200] * PLANS + [429]
        assert 1 <= int(retry_after) <= 60 // PLANS


async def test_requests_that_are_refused_count_as_well(tmp_path: Path) -> None:
    async with tenants(tmp_path) as there:
        await there.control.services.quotas.replace_all([QUOTA], {"team-a": {}})
        path = "/v1/content?namespace=team-a&reference=x"
        statuses = Counter([(await there.answer(ATTACKER, path))[0] for _ in range(BURST + 5)])
        assert statuses == {403: BURST, 429: 5}


async def refusals_of(there: Tenants, attacker: str, refused: int) -> float:
    """Sends requests on 20 connections until 90 are refused; returns how many a second."""
    statuses, began_s = Counter[int](), time.monotonic()

    async def send() -> None:
        while statuses[refused] < 90:
            status, _ = await there.answer(attacker, "/v1/quota?namespace=team-b")
            statuses[status] += 1

    await asyncio.gather(*(send() for _ in range(20)))
    # The refusals of the first second are sent at once.
    return (statuses[refused] - REFUSALS_PER_S) / (time.monotonic() - began_s)


async def test_a_connection_sends_no_request_while_its_refusal_waits(tmp_path: Path) -> None:
    async with tenants(tmp_path) as there:
        await there.control.services.quotas.replace_all([QUOTA], {"team-a": {}, "team-b": {}})
        assert await refusals_of(there, ATTACKER, 429) <= REFUSALS_PER_S
        status, _ = await there.answer(OWNER, "/v1/quota?namespace=team-a")
        assert status == 200


async def test_requests_without_a_valid_token_are_refused_at_the_same_pace(tmp_path: Path) -> None:
    async with tenants(tmp_path) as there:
        assert await refusals_of(there, "unknown", 401) <= REFUSALS_PER_S
        status, _ = await there.answer(OWNER, "/v1/quota?namespace=team-a")
        assert status == 200


async def test_where_too_many_refusals_wait_further_ones_close_their_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowmesh_control.api.paced_refusals.WAITING_MAX", 1)
    async with tenants(tmp_path) as there:

        async def closes() -> bool:
            url = f"{there.control.url}/v1/quota?namespace=team-b"
            async with there.http.get(url) as response:
                assert response.status == 401
                return response.headers.get("Connection") == "close"

        answers = await asyncio.gather(*(closes() for _ in range(60)))
        assert 0 < sum(answers) <= 60 - REFUSALS_PER_S
        status, _ = await there.answer(OWNER, "/v1/quota?namespace=team-a")
        assert status == 200


async def test_clients_that_leave_while_their_refusal_waits_cost_no_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with tenants(tmp_path) as there:
        server = urlsplit(there.control.url)
        head = f"GET /v1/quota?namespace=team-b HTTP/1.1\r\nHost: {server.netloc}\r\n\r\n"

        async def leaves() -> None:
            reader, writer = await asyncio.open_connection(server.hostname, server.port)
            writer.write(head.encode())
            with suppress(TimeoutError):  # the refusals of the first second are sent at once
                await asyncio.wait_for(reader.read(1), 0.2)
            writer.close()
            await writer.wait_closed()

        await asyncio.gather(*(leaves() for _ in range(int(REFUSALS_PER_S) + 10)))
        status, _ = await there.answer(OWNER, "/v1/quota?namespace=team-a")
        assert status == 200
    assert [r.message for r in caplog.records if r.levelno >= logging.WARNING] == []
