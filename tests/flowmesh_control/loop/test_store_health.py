"""The error that keeps the control plane from writing is shown while it lasts and logged once."""

import asyncio
import logging

import pytest

from flowmesh_control.loop import store_health
from flowmesh_control.loop.store_health import StoreHealth
from flowmesh_control.loop.task_pool import TaskPool
from flowmesh_core.errors import FlowMeshError, StoreFullError, StoreUnavailableError

FULL = StoreFullError("no space is left", where="runs/x", remedy="free space")


def test_an_error_is_shown_until_it_fades(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(store_health.time, "monotonic", lambda: now_s)
    found = StoreHealth()
    assert found.text == ""
    found.record_failure(FULL)
    assert found.text == "no space is left; free space"
    now_s += store_health.FADES_S
    assert found.text == ""


def test_the_log_reports_a_repeated_error_only_once(caplog: pytest.LogCaptureFixture) -> None:
    found = StoreHealth()
    logger = logging.getLogger("flowmesh")
    logger.propagate = True
    with caplog.at_level(logging.WARNING, logger="flowmesh.control"):
        for _ in range(5):
            found.record_failure(FULL)
    assert [r.message for r in caplog.records] == [
        "waiting for the store: runs/x: no space is left; free space"
    ]


async def test_a_job_that_waits_for_the_store_reports_why() -> None:
    errors: list[FlowMeshError] = []
    done = asyncio.Event()

    async def job(_: object) -> None:
        if not errors:
            raise StoreUnavailableError("no space is left", where="cas/x", remedy="free space")
        done.set()

    tasks = TaskPool(failed=lambda e: None, waits=errors.append, count=1)
    tasks.start()
    tasks.submit(job, None)
    await asyncio.wait_for(done.wait(), 10)
    await tasks.stop()
    assert [e.message for e in errors] == ["no space is left"]
