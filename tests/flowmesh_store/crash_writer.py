"""A process that writes blobs and records until it is killed; test_crash.py starts it.

Every record says its own digest first, so that a torn one shows. A line on standard output tells
each round.
"""

import asyncio
import random
import sys
from pathlib import Path

from flowmesh_store.hashing import digest_of
from flowmesh_store.store import Store, open_store

SCOPE = "ns-team-a"


def sealed(payload: bytes) -> bytes:
    return digest_of(payload).encode() + b"\n" + payload


def is_whole(record: bytes) -> bool:
    digest, _, payload = record.partition(b"\n")
    return digest == digest_of(payload).encode()


async def one_round(store: Store, seed: int, scratch: Path) -> None:
    blobs = store.view(write=SCOPE, read=(SCOPE,))
    chance = random.Random(seed)
    data = chance.randbytes(chance.choice((100, 50_000, 2_000_000)))
    await blobs.put(digest_of(data), data)
    await asyncio.to_thread(scratch.write_bytes, b"file" + data)
    await blobs.put(digest_of(b"file" + data), scratch)
    with blobs.spool() as writer:
        writer.write(b"spooled" + data)
        spooled = writer.finish()
    await blobs.put_spooled(spooled)
    etag = await store.records.write(f"runs/{seed}/spec", sealed(data))
    await store.records.write(f"runs/{seed}/spec", sealed(b"replaced" + data), if_match=etag)
    await store.records.write(f"actions/s/{seed}", sealed(data[:500].hex().encode()))


async def write_for_ever(directory: Path, first_seed: int) -> None:
    store = open_store(directory)
    seed = first_seed
    while True:
        await one_round(store, seed, directory.parent / "scratch")
        seed += 1
        sys.stdout.write(f"{seed}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(write_for_ever(Path(sys.argv[1]), int(sys.argv[2])))
