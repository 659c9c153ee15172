"""Killed writers and racing processes: what a reader of the same directory ever sees."""

import asyncio
import random
import select
import subprocess
import sys
from pathlib import Path

import pytest
from crash_writer import is_whole, one_round
from tests.blob_views import blobs_of

from flowmesh_store.hashing import digest_of_file
from flowmesh_store.store import Store, open_store

HERE = Path(__file__).parent
KILLS = 20


async def all_visible_is_whole(store: Store) -> tuple[int, int]:
    """Reads everything there is, as any reader would; the numbers of blobs and records."""
    blobs = [blob.digest async for blob in store.sweepable_blobs.blobs()]
    for digest in blobs:
        await blobs_of(store).get(digest)  # raises where the content is not its digest's
    keys = [key async for key in store.records.keys("")]
    for key in keys:
        record = await store.records.read(key)
        assert record is not None
        assert is_whole(record.data), key
    return len(blobs), len(keys)


def kill_at_a_seeded_moment(directory: Path, seed: int) -> None:
    chance = random.Random(seed)
    with subprocess.Popen(
        [sys.executable, str(HERE / "crash_writer.py"), str(directory), str(seed * 1_000_000)],
        stdout=subprocess.PIPE,
    ) as writer:
        assert writer.stdout is not None
        for _ in range(chance.randint(1, 4)):
            assert writer.stdout.readline(), "the writer ended by itself"
        select.select([], [], [], chance.uniform(0, 0.02))
        writer.kill()


@pytest.mark.slow
async def test_a_writer_killed_at_20_seeded_moments_leaves_nothing_torn(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    store = open_store(directory)
    for seed in range(KILLS):
        killing = asyncio.create_task(asyncio.to_thread(kill_at_a_seeded_moment, directory, seed))
        while not killing.done():
            await all_visible_is_whole(store)  # a reader beside the writer
        await killing
        blobs, records = await all_visible_is_whole(store)
        assert blobs >= 3 * (seed + 1)
        assert records >= 2 * (seed + 1)
        # The dead process holds no lock, and what it began can be done again.
        await asyncio.wait_for(one_round(store, -1 - seed, tmp_path / "mine"), 60)
    left = list((directory / ".tmp").iterdir())
    removed = await store.sweepable_blobs.discard_unfinished(older_than_s=float("-inf"))
    assert removed == len(left)
    assert list((directory / ".tmp").iterdir()) == []
    for path in (directory / "cas").glob("*/*/*"):
        assert digest_of_file(path) == path.name


@pytest.mark.parametrize("key", ["epochs/7", "actions/s/7"])
@pytest.mark.parametrize("condition", ["if nothing is there", "if it matches"])
async def test_of_64_writers_in_four_processes_one_wins(
    tmp_path: Path, condition: str, key: str
) -> None:
    records = open_store(tmp_path).records
    etag = "" if condition == "if nothing is there" else await records.write(key, b"0")
    racers = [start_racer(tmp_path, key, etag) for _ in range(4)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [int(racer.communicate()[0]) for racer in racers]
    assert sum(won) == 1
    winner = racers[won.index(1)]
    record = await records.read(key)
    assert record is not None
    assert record.data.startswith(f"{winner.pid}-".encode())


def start_racer(directory: Path, key: str, etag: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(HERE / "race_writer.py"), str(directory), key, etag],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
