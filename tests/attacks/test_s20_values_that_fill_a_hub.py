"""Attacker: T2, a tenant that may call a service with stages on a worker that tenants share.
Action: keeps large requests open, until the hub holds as many bytes of values as it may.
Must not happen: the requests of another tenant on the same worker are refused.
"""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.attacks.test_s19_requests_that_break_links import engine
from tests.flowmesh_serving import stage_stack as stacks
from tests.flowmesh_serving.stack import TOKEN, until
from tests.flowmesh_serving.stage_stack import URL, StageStack, stage_stack

from flowmesh_core.protocol.router_services import ServiceToken, token_hash
from flowmesh_worker.serving import stage_requests

pytestmark = pytest.mark.slow
MOST = 1 << 20
PAD = "x" * 200_000
TOKENS = (ServiceToken(token_hash(TOKEN), "team-a"), ServiceToken(token_hash("b"), "team-b"))


async def asked(stack: StageStack, token: str, text: str) -> tuple[int, Any]:
    url, headers = f"{stack.stack.router.url}{URL}", {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(url, json={"q": text, "pad": PAD}) as response,
    ):
        return response.status, await response.json()


async def test_a_tenant_leaves_others_a_part_of_a_hubs_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_requests, "VALUES_BYTES_MAX", MOST)
    monkeypatch.setattr(stacks, "SALTS", {"team-a": "a", "team-b": "b"})
    spec = engine("{{ request.q }}")
    async with stage_stack(tmp_path, spec, {"w1": ["llm"]}, tokens=TOKENS) as stack:
        hub = stack.hubs["w1"]._stages
        waiting: list[asyncio.Task[tuple[int, Any]]] = []
        while not any(task.done() for task in waiting):
            waiting.append(asyncio.create_task(asked(stack, TOKEN, "wait")))
            last, wanted = waiting[-1], len(waiting)
            await until(lambda: last.done() or len(hub) >= wanted)  # noqa: B023 - at once
        assert waiting[-1].result()[0] == 429
        assert hub._value_bytes > MOST // 2
        assert await asked(stack, "b", "answered") == (200, {"said": "answered"})
        for task in waiting:
            task.cancel()
        await until(lambda: not hub._value_bytes)
        assert not hub._tenant_bytes
