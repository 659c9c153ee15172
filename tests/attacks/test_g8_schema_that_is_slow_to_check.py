"""Attacker: T1, a tenant that may call a service whose schema of requests has many alternatives.
Action: sends large requests for which all of them are tried.
Must not happen: a request of another tenant waits for the check, or the check has no end.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.flowmesh_serving.stage_stack import URL, entry_of, python, service_of, stage_stack

from flowmesh_core.protocol.router_services import (
    RouterServices,
    ServiceToken,
    token_hash,
)
from flowmesh_serving.request_schemas import _STEPS_MAX

pytestmark = pytest.mark.slow
CODE = "def compute(batch):\n    return [call['q'] for call in batch]\n"
SPEC: dict[str, Any] = {
    "components": {"only": python(CODE, "compute")},
    "stages": [{"name": "one", "component": "only", "inputs": {"q": "request.q"}}],
    "reply": {"out": "one"},
}
_ALTERNATIVES = [{"const": [-n]} for n in range(1, 100)]
HOSTILE = {"properties": {"q": {"items": {"not": {"anyOf": _ALTERNATIVES}}}}}


async def test_a_slow_schema_delays_no_other_tenant_and_its_check_ends(tmp_path: Path) -> None:
    async with stage_stack(tmp_path, SPEC, {"w1": ["only"]}) as stack:
        owner = entry_of(service_of(SPEC), request_schema=HOSTILE)
        hostile = ServiceToken(token_hash("fm-hostile"), "team-b")
        entry = msgspec.structs.replace(owner, tokens=(*owner.tokens, hostile))
        stack.stack.router._services.use(RouterServices((entry,)))
        body = json.dumps({"q": [[n] for n in range(20_000)]})
        url = f"{stack.stack.router.url}{URL}"
        headers = {"Authorization": "Bearer fm-hostile"}

        async def attack() -> tuple[int, str]:
            async with stack.session.post(url, data=body, headers=headers) as response:
                return response.status, await response.text()

        attacking = [asyncio.create_task(attack()) for _ in range(3)]
        answered = 0
        while not all(task.done() for task in attacking):
            assert await stack.ask({"q": "mine"}) == (200, {"out": "mine"})
            answered += 1
        for status, text in await asyncio.gather(*attacking):
            assert f"more than {_STEPS_MAX:,} steps" in text, status
        assert answered > 10, "the owner's requests passed while the checks went on"
