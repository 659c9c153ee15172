"""Batches that expire or are cancelled return what is done."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession
from openai import AsyncOpenAI, BadRequestError
from openai.types import Batch
from tests.flowmesh_control.fabric import Fabric, control_plane
from tests.flowmesh_control.openai.batches import created, line, lines_of, reaches, texts_of
from tests.flowmesh_control.openai.conftest import SETTINGS, client_of

pytestmark = pytest.mark.slow

QUICK = [line(f"q{i}") for i in range(200)]
ENDLESS = line("endless", max_tokens=1_000_000)


class ClockWithOffset:
    def __init__(self) -> None:
        self.offset_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.offset_s


@pytest.fixture
def clock() -> ClockWithOffset:
    return ClockWithOffset()


@pytest.fixture
async def fabric(tmp_path: Path, clock: ClockWithOffset) -> AsyncIterator[Fabric]:
    control = control_plane(tmp_path, clock=clock, settings=SETTINGS)
    await control.start()
    async with ClientSession() as http:
        fabric = Fabric(tmp_path, control, http)
        fabric.worker("local-w")
        yield fabric
        await asyncio.to_thread(fabric.close)
    await fabric.control.stop()


@pytest.fixture
async def client(fabric: Fabric) -> AsyncIterator[AsyncOpenAI]:
    async with client_of(fabric.control.url) as found:
        yield found


async def all_but_the_endless_chunk(client: AsyncOpenAI, name: str) -> Batch:
    async with asyncio.timeout(120):
        while True:
            batch = await client.batches.retrieve(name)
            assert batch.request_counts is not None
            if batch.request_counts.completed >= 100:
                return batch
            await asyncio.sleep(0.02)


async def check_results(client: AsyncOpenAI, batch: Batch, code: str) -> None:
    """Checks that each line is in one of the files, and the endless one among the errors."""
    answered = texts_of(await lines_of(client, batch.output_file_id))
    assert all(text == name for name, text in answered.items())
    assert len(answered) >= 100
    errors = await lines_of(client, batch.error_file_id)
    assert {e["error"]["code"] for e in errors} == {code}
    unsent = {e["custom_id"] for e in errors}
    assert "endless" in unsent
    assert unsent | answered.keys() == {"endless", *(f"q{i}" for i in range(200))}
    assert not unsent & answered.keys()
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {
        "total": 201,
        "completed": len(answered),
        "failed": len(unsent),
    }


async def test_an_expired_batch_returns_what_is_done(
    fabric: Fabric, client: AsyncOpenAI, clock: ClockWithOffset
) -> None:
    batch = await created(client, [*QUICK, ENDLESS], window="1h")
    assert batch.expires_at == batch.created_at + 3600
    running = await all_but_the_endless_chunk(client, batch.id)
    assert running.status == "in_progress"
    run = f"/v1/runs/{batch.id.replace('_', '-')}"
    rows = await fabric.call("GET", f"{run}/outputs/responses?partial=1")
    assert rows.count(b"\n") >= 100
    await fabric.call("GET", f"{run}/outputs/responses", status=404)
    clock.offset_s = 3700.0
    expired = await reaches(client, batch.id, "expired")
    assert expired.expired_at is not None
    await check_results(client, expired, "batch_expired")
    again = await fabric.call("GET", f"{run}/outputs/responses?partial=1")
    assert again.count(b"\n") >= 100


async def test_a_cancelled_batch_returns_what_is_done_and_cannot_be_cancelled_twice(
    client: AsyncOpenAI,
) -> None:
    batch = await created(client, [*QUICK, ENDLESS])
    await all_but_the_endless_chunk(client, batch.id)
    cancelling = await client.batches.cancel(batch.id)
    assert cancelling.status in ("cancelling", "cancelled")
    cancelled = await reaches(client, batch.id, "cancelled")
    await check_results(client, cancelled, "batch_cancelled")
    with pytest.raises(BadRequestError, match="Cannot cancel"):
        await client.batches.cancel(batch.id)
