"""What probes look at: a worker that lives touches a file, one that was welcomed has another."""

import asyncio
import os
from pathlib import Path

import pytest

from flowmesh_worker import health
from flowmesh_worker.health import Health


async def test_a_live_worker_keeps_touching_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "BEAT_EVERY_S", 0.01)
    beating = asyncio.create_task(Health(tmp_path / "h").touch_periodically())
    alive = tmp_path / "h" / "alive"
    for _ in range(2):
        async with asyncio.timeout(180):
            while not alive.exists() or alive.stat().st_mtime == 0:  # noqa: ASYNC110 - files tell nobody
                await asyncio.sleep(0.005)
        os.utime(alive, (0, 0))
    beating.cancel()


def test_the_ready_file_means_that_this_process_was_welcomed_and_not_an_earlier_one(
    tmp_path: Path,
) -> None:
    first = Health(tmp_path)
    assert not (tmp_path / "ready").exists()
    first.mark_ready()
    first.mark_ready()
    assert (tmp_path / "ready").exists()
    Health(tmp_path)
    assert not (tmp_path / "ready").exists()


async def test_without_a_folder_nothing_is_written() -> None:
    nowhere = Health(None)
    nowhere.mark_ready()
    await nowhere.touch_periodically()
