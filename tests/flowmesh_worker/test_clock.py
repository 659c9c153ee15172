"""Somebody sets the worker's clock, by an hour, while an attempt goes on."""

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

    from flowmesh_core.protocol.messages import Sync


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
async def test_a_clock_step_does_not_count_in_an_attempts_duration(
    world: "World", monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    await world.worker()
    attempt = world.assignment("test.sleep", params={"seconds": 600, "value": 1})
    await world.gateway.assign(attempt)
    real = time.time

    def loading(sync: "Sync") -> bool:
        return any(p.phase == "loading" for p in sync.progress)

    await world.gateway.until(lambda: any(map(loading, world.gateway.syncs)))
    monkeypatch.setattr(time, "time", lambda: real() + step_s)
    await world.gateway.phase(attempt.attempt_id, "running")
    monkeypatch.setattr(time, "time", lambda: real() + 2 * step_s)
    await world.gateway.desire(cancel=(attempt.attempt_id,))
    end = await world.gateway.end(attempt.attempt_id)
    assert 0 <= end.usage.run_s < 60
    assert 0 <= end.usage.load_s < 60
