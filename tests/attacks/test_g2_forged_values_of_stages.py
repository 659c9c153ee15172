"""Attacker: W, the hub of a worker that the router knows.
Action: sends values, failures and pieces of requests whose route is elsewhere.
Must not happen: a reply contains them, or a request ends by them; the route's own hub answers.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_serving.stack import until
from tests.flowmesh_serving.stage_stack import python, stage_stack
from tests.flowmesh_serving.test_sockets import frame

from flowmesh_core.protocol.serving import (
    SERVING_VERSION,
    HubHello,
    Piece,
    StageFailed,
    StageValue,
)

pytestmark = pytest.mark.slow
CODE = """
import time

def compute(batch):
    time.sleep(0.5)
    return [call["q"] for call in batch]
"""
SPEC: dict[str, Any] = {
    "components": {"only": python(CODE, "compute")},
    "stages": [{"name": "one", "component": "only", "inputs": {"q": "request.q"}}],
    "reply": {"out": "one"},
}


async def test_a_hub_answers_for_no_stage_of_another_hub(tmp_path: Path) -> None:
    async with stage_stack(tmp_path, SPEC, {"w1": ["only"]}) as stack:
        _, writer = await asyncio.open_unix_connection(str(tmp_path / "hubs"))
        writer.write(frame(HubHello(SERVING_VERSION, "w2", "i", ())))
        asking = asyncio.create_task(stack.ask({"q": "right"}))
        pending = stack.stack.router._staged._pending
        await until(lambda: len(pending) == 1)
        (request_id,) = pending
        writer.write(
            frame(
                StageValue(request_id, 1, "reply", "one", b'"forged"'),
                StageFailed(request_id, 1, "one", "", "failed", 500, b""),
                Piece(request_id, b"data: {}\n\n"),
            )
        )
        assert await asking == (200, {"out": "right"})
        writer.close()
