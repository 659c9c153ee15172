"""Stages of an affinity group run on one worker that has the whole group, so no value is remote.

Real routers, hubs and hosts: one worker has the group, one half of it, and a third comes later.
"""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_serving.stack import until
from tests.flowmesh_serving.stage_stack import SERVICE, StageStack, python, stage_stack, together

pytestmark = pytest.mark.nightly

CODE = """
import numpy as np

def make(batch):
    return [{"rows": np.full(20_000, call["n"], dtype="<f4")} for call in batch]

def first(batch):
    return [int(call["rows"][0]) for call in batch]
"""
REMOTE = ("peer", "relay")


def service(**more: Any) -> dict[str, Any]:
    """Returns two components, of which the first passes an array to the second."""
    own = {"ownHost": True, "batch": {"max": 1}, **more}
    return {
        "components": {"one": python(CODE, "make", **own), "two": python(CODE, "first", **own)},
        "stages": [
            {"name": "made", "component": "one", "inputs": {"n": "request.n"}},
            {"name": "used", "component": "two", "inputs": {"rows": "made.rows"}},
        ],
        "reply": {"out": "used"},
    }


async def answered(stack: StageStack, first: int) -> int:
    """Sends more requests at once than a worker runs; returns how many were answered."""
    replies = await together(*(stack.ask({"n": first + n}) for n in range(24)))
    wrong = [r for n, r in enumerate(replies) if r[0] == 200 and r[1] != {"out": first + n}]
    assert not wrong
    return sum(status == 200 for status, _ in replies)


async def remote_bytes(stack: StageStack) -> float:
    return sum([await stack.until_passed(tier, 0) for tier in REMOTE])


async def test_requests_use_no_worker_that_has_only_a_part_of_the_group(tmp_path: Path) -> None:
    workers = {"half": ["one"], "whole": ["one", "two"]}
    spec = service(affinity="pair")
    async with stage_stack(tmp_path, spec, workers, max_in_flight=256) as stack:
        assert await answered(stack, 0)
        assert await stack.until_passed("shared")
        # A group that is no longer whole gets nothing, until another worker has all of it.
        os.kill(stack.hosts["whole", "two"].pid, signal.SIGKILL)
        replicas = stack.stack.router._replicas
        await until(lambda: len(replicas.of(SERVICE)) == 2)
        status, body = await stack.ask({"n": 1}, **{"X-Request-Timeout": "0.5"})
        assert (status, body["error"]["code"]) == (503, "no_replica")
        await stack.start_worker("other", ["one", "two"])
        await until(lambda: len(replicas.of(SERVICE)) == 4)
        assert await answered(stack, 100)
        assert await remote_bytes(stack) == 0


async def test_without_affinity_values_pass_between_workers(tmp_path: Path) -> None:
    workers = {"half": ["one"], "whole": ["one", "two"]}
    async with stage_stack(tmp_path, service(), workers, max_in_flight=256) as stack:
        for first in range(0, 240, 24):
            assert await answered(stack, first)
        assert await remote_bytes(stack) > 0
