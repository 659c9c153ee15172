"""Attacker: T2, a tenant whose namespace shares with no other.
Action: runs a step that another tenant may have run, and watches its time, costs and answers.
Must not happen: these differ from those of a step that no tenant has run.
(``make bench-side-channels`` measures the times on real parts.)
"""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.by_hand import HandWorker, Place, end_of, noop, place
from tests.flowmesh_control.fabric import API_TOKEN, workflow

sys.path.append(str(Path(__file__).parents[2] / "bench"))

import simulated_observer

VARYING = re.compile(rb"[0-9a-f]{32,}|observed-[0-9a-f-]+|(?<![a-z])\d+(?:\.\d+)?(?:e-\d+)?")
"""Digests, uids and numbers: times and amounts of money depend on this machine."""


def test_in_virtual_time_a_known_step_takes_as_long_as_a_fresh_one() -> None:
    alone, shared = (
        simulated_observer.SimulatedObserver(4, sharing=sharing, busy=False).samples()
        for sharing in ("private", "group")
    )
    for known, fresh in zip(alone["known"], alone["fresh"], strict=True):
        assert known.pop("dollars") == pytest.approx(fresh.pop("dollars"), rel=0.1)
        assert known == pytest.approx(fresh)
    for known, fresh in zip(shared["known"], shared["fresh"], strict=True):
        assert known["hits"] > 0 == fresh["hits"]  # under a policy it would be seen
        assert known["seconds"] < fresh["seconds"]


async def finished(there: Place, worker: HandWorker, tenant: str, value: str) -> list[bytes]:
    """Runs a step to its end; returns what the tenant is shown of it."""
    before = set(worker.assigned)
    body = {"document": workflow("observed", noop(value), tenant)}
    headers = {"Authorization": f"Bearer {API_TOKEN}"}
    async with there.http.post(f"{there.control.url}/v1/runs", json=body, headers=headers) as sent:
        uid = (await sent.json())["uid"]
    await worker.given(len(before) + 1)  # a hit would wait here for ever
    [attempt_id] = set(worker.assigned) - before
    given: Any = worker.assigned[attempt_id]
    end = end_of(attempt_id, given.action_id, value=value, token=given.token)
    await worker.sync(ended=(end,))
    await there.ended(uid)
    views = (
        "",
        "/receipt",
        "/why?step=one",
        "/explain?step=one",
        "/logs",
        "/lineage?name=one.metrics",
        "/trace",
    )
    shown = [await there.get(f"/v1/runs/{uid}{view}") for view in views]
    assert b'"actions":1,"executed":1' in shown[0]
    assert b'"hits":' not in shown[0]
    return [VARYING.sub(b"~", answer) for answer in shown]


async def test_a_known_step_is_run_and_shown_as_a_fresh_one() -> None:
    async with place() as there:
        worker = await there.join("w1")
        await finished(there, worker, "team-b", "first")  # the first ever teaches the cost model
        await finished(there, worker, "team-a", "known")
        known = await finished(there, worker, "team-b", "known")
        fresh = await finished(there, worker, "team-b", "fresh")
        assert [k.replace(b"known", b"fresh") for k in known] == fresh
