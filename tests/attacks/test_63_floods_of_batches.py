"""Attacker: T2, a tenant with the right to upload files, in a namespace without a quota.
Action: creates many batches of large files at once, and asks for plans of them.
Must not happen: another tenant's batch waits for all of them, or all threads read these files.
"""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_control.fabric import control_plane
from tests.flowmesh_control.openai.batches import created, line, reaches, uploaded
from tests.flowmesh_control.openai.conftest import SETTINGS, client_of

from flowmesh_control.openai import batches
from flowmesh_control.openai.input_file import read_input_file

pytestmark = pytest.mark.slow
POOL = 4
"""Threads of the event loop, whatever the machine has."""
FLOOD = 6


class Readers:
    """Reads files when it is told to, and says whose."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.running = 0
        self._may_end = threading.Semaphore(0)
        self._lock = threading.Lock()

    def __call__(self, source: Path, *more: Any) -> Any:
        with self._lock:
            self.begun.append("team-b" if b"of team-b" in source.read_bytes() else "team-a")
            self.running += 1
        assert self._may_end.acquire(timeout=60)
        with self._lock:
            self.running -= 1
        return read_input_file(source, *more)

    def end(self, count: int) -> None:
        self._may_end.release(count)

    async def until_begun(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.begun) < count:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.005)


async def test_another_tenants_batch_is_read_after_one_of_a_flood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = Readers()
    monkeypatch.setattr(batches, "read_input_file", readers)
    with ThreadPoolExecutor(POOL) as pool:
        asyncio.get_running_loop().set_default_executor(pool)
        control = control_plane(tmp_path, settings=SETTINGS)
        await control.start()
        try:
            await attacked(control.url, readers)
        finally:
            readers.end(2 * (FLOOD + POOL))
            await control.stop()


async def attacked(url: str, readers: Readers) -> None:
    async with client_of(url, "team-a") as attacker, client_of(url, "team-b") as other:
        for number in range(FLOOD):
            await created(attacker, [line(f"a-{number}")])
        await readers.until_begun(batches.AT_ONCE)
        file = await uploaded(attacker, [line("planned")])
        body = {"input_file_id": file, "endpoint": "/v1/chat/completions"}
        plans = [
            asyncio.create_task(attacker.post("/batches/plan", cast_to=object, body=body))
            for _ in range(POOL)
        ]
        async with asyncio.timeout(30):  # all threads would wait for the attacker's files
            batch = await created(other, [line("of team-b")])
            assert (await other.batches.retrieve(batch.id)).status == "validating"
        assert readers.running == batches.AT_ONCE
        readers.end(1)
        await readers.until_begun(batches.AT_ONCE + 1)
        assert readers.begun == ["team-a"] * batches.AT_ONCE + ["team-b"]
        readers.end(FLOOD + POOL)
        await reaches(other, batch.id, "in_progress")
        for plan in plans:
            assert isinstance(await plan, dict)
        assert len(readers.begun) == FLOOD + POOL + 1
