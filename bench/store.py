"""Compares the store with plain file operations and with boto3.

Goals: a filesystem put reaches 80% of a plain copy-and-hash, a verified read 80% of a plain
read-and-hash, and small objects in S3 are three times as fast as with boto3. The two sides
alternate and their medians are compared, so that a slow moment affects both. Run it with
``python bench/store.py [--rounds N] [--json FILE] [--no-s3]``.
"""

import argparse
import asyncio
import gc
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import boto3
from blake3 import blake3
from botocore.config import Config

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / f) for f in ("api", "core", "store", "tests/flowmesh_store")]

import versitygw  # noqa: E402 - found on the path set above

from flowmesh_core.units import Digest  # noqa: E402
from flowmesh_store.blobs import BlobView  # noqa: E402
from flowmesh_store.hashing import digest_of  # noqa: E402
from flowmesh_store.store import Store, open_store  # noqa: E402

CHUNK = 1 << 20
CONCURRENCY = 32
READ_BYTES_LEAST = 128 << 20
"""Reads from the page cache are fast: with fewer bytes the times would be mostly noise."""
S3_OBJECTS = 1000
S3_OBJECT_BYTES = 16 << 10

Work = Callable[[int], Awaitable[None]]


@dataclass(frozen=True)
class Comparison:
    """One row of the table: medians in seconds, and the ratio that the store has to reach."""

    name: str
    ours_s: float
    other_s: float
    bar: float

    @property
    def ratio(self) -> float:
        """The other's time divided by the store's: 1 is as fast, 2 twice as fast."""
        return self.other_s / self.ours_s

    @property
    def holds(self) -> bool:
        """Whether the goal is reached; a goal of 0 is for information."""
        return self.ratio >= self.bar


async def nothing(_: int) -> None:
    """Prepares nothing."""


async def interleaved(
    name: str, ours: Work, other: Work, rounds: int, bar: float, prepare: Work = nothing
) -> Comparison:
    """Runs both in turns, in alternating order, after one warm-up round.

    ``prepare`` runs before each, outside of the measured time.
    """
    times: dict[str, list[float]] = {"ours": [], "other": []}
    pair = [("ours", ours), ("other", other)]
    for number in range(-1, rounds):
        for label, work in pair if number % 2 else reversed(pair):
            await prepare(number)
            gc.collect()
            started = time.perf_counter()
            await work(number)
            if number >= 0:
                times[label].append(time.perf_counter() - started)
    medians = {label: statistics.median(seconds) for label, seconds in times.items()}
    return Comparison(name, medians["ours"], medians["other"], bar)


def plain_copy_and_hash(source: Path, target: Path) -> str:
    """Copies a file in one loop that reads, hashes and writes."""
    hasher = blake3()
    with source.open("rb") as reader, target.open("wb") as writer:
        while chunk := reader.read(CHUNK):
            hasher.update(chunk)
            writer.write(chunk)
    return hasher.hexdigest()


def plain_read_and_hash(path: Path) -> str:
    """Reads a file whole and hashes it."""
    return blake3(path.read_bytes()).hexdigest()


def plain_write_and_hash(data: bytes, path: Path) -> str:
    """Hashes bytes and writes them to a file."""
    path.write_bytes(data)
    return blake3(data).hexdigest()


SCOPE = "ns-default"


def blobs_of(store: Store) -> BlobView:
    """Returns the blobs as the one namespace of this benchmark sees them."""
    return store.view(write=SCOPE, read=(SCOPE,))


class Files:
    """Distinct content of one size, in memory and in files."""

    def __init__(self, directory: Path, size: int, count: int) -> None:
        """Writes the sources; a counter in each makes them distinct."""
        home = directory / f"{size}"
        home.mkdir()
        block = os.urandom(size)
        self.contents = [i.to_bytes(8, "big") + block[8:] for i in range(count)]
        self.digests = [digest_of(c) for c in self.contents]
        self.paths = [home / f"source-{i}" for i in range(count)]
        for path, content in zip(self.paths, self.contents, strict=True):
            path.write_bytes(content)
        self.copies = home / "copies"
        self.copies.mkdir()

    async def forget_copies(self, _: int) -> None:
        """Empties the folder of copies, so that both sides write new files."""
        shutil.rmtree(self.copies)
        self.copies.mkdir()

    def copy(self, number: int) -> Path:
        """Returns the path to which the plain loop writes."""
        return self.copies / f"{number}"


async def puts(name: str, store: Store, files: Files, rounds: int, *, as_file: bool) -> Comparison:
    """Compares puts of new blobs with plain copies to new files."""

    async def ours(_: int) -> None:
        for number, digest in enumerate(files.digests):
            data = files.paths[number] if as_file else files.contents[number]
            await blobs_of(store).put(digest, data)

    async def plain(_: int) -> None:
        for number, digest in enumerate(files.digests):
            if as_file:
                found = plain_copy_and_hash(files.paths[number], files.copy(number))
            else:
                found = plain_write_and_hash(files.contents[number], files.copy(number))
            assert found == digest

    async def empty(number: int) -> None:
        for digest in files.digests:
            await store.sweepable_blobs.delete(SCOPE, digest, older_than_s=float("-inf"))
        await files.forget_copies(number)

    return await interleaved(name, ours, plain, rounds, 0.8, empty)


async def filesystem(directory: Path, size: int, count: int, rounds: int) -> list[Comparison]:
    """Compares puts of files and bytes, verified reads and fetches, of ``count`` blobs each."""
    store: Store = open_store(directory / f"store-{size}")
    files = Files(directory, size, count)
    label = f"{count} x {size >> 10} KiB"
    passes = max(1, READ_BYTES_LEAST // (size * count))

    async def gets(_: int) -> None:
        for digest in files.digests * passes:
            await blobs_of(store).get(digest)

    async def reads(_: int) -> None:
        for path, digest in zip(files.paths * passes, files.digests * passes, strict=True):
            assert plain_read_and_hash(path) == digest

    async def fetches(_: int) -> None:
        for number, digest in enumerate(files.digests):
            await blobs_of(store).fetch(digest, files.copy(number))

    async def copies(_: int) -> None:
        for number, path in enumerate(files.paths):
            assert plain_copy_and_hash(path, files.copy(number)) == files.digests[number]

    rows = [
        await puts(f"filesystem put of files, {label}", store, files, rounds, as_file=True),
        await puts(f"filesystem put of bytes, {label}", store, files, rounds, as_file=False),
    ]
    for digest, content in zip(files.digests, files.contents, strict=True):
        await blobs_of(store).put(digest, content)
    name = f"filesystem verified get, {label}" + (f", {passes} times" if passes > 1 else "")
    rows.append(await interleaved(name, gets, reads, rounds, 0.8))
    name = f"filesystem fetch, {label}"
    rows.append(await interleaved(name, fetches, copies, rounds, 0.8, files.forget_copies))
    return rows


class Bucket:
    """1,000 objects of 16 KiB by the store, by boto3 in a loop and by boto3 in threads."""

    def __init__(self, server: versitygw.S3Server) -> None:
        """Opens both clients; nothing is connected yet."""
        self.store = open_store(server.url("ours"))
        self._blobs = blobs_of(self.store)
        self.client = boto3.client(
            "s3", endpoint_url=server.endpoint, region_name="us-east-1",
            config=Config(max_pool_connections=CONCURRENCY, s3={"addressing_style": "path"}),
        )  # fmt: skip
        self.threads = ThreadPoolExecutor(CONCURRENCY)
        self._block = os.urandom(S3_OBJECT_BYTES)
        self._serial = 0
        self._stored: list[Digest] = []

    def close(self) -> None:
        """Closes what was opened."""
        self.threads.shutdown()
        self.client.close()
        self.store.close()

    def _fresh(self) -> list[bytes]:
        """Returns content that was never put."""
        self._serial += 1
        head = [b"%08d%08d" % (self._serial, i) for i in range(S3_OBJECTS)]
        return [h + self._block[16:] for h in head]

    async def our_puts(self, _: int) -> None:
        """Puts new content with the store, with the time for its digests."""

        async def put(content: bytes) -> Digest:
            digest = digest_of(content)
            await self._blobs.put(digest, content)
            return digest

        self._stored = await limited(self._fresh(), put)

    async def our_gets(self, _: int) -> None:
        """Gets the content with the store, which verifies it."""
        await limited(self._stored, self._blobs.get)

    async def loop_puts(self, _: int) -> None:
        """Puts new content with boto3, one after the other."""
        for i, content in enumerate(self._fresh()):
            self._put(i, content)

    async def pool_puts(self, _: int) -> None:
        """Puts new content with boto3, in as many threads as the store has requests."""
        list(self.threads.map(self._put, range(S3_OBJECTS), self._fresh()))

    async def loop_gets(self, _: int) -> None:
        """Gets the content with boto3 in sequence, not verified."""
        for i in range(S3_OBJECTS):
            self._get(i)

    async def pool_gets(self, _: int) -> None:
        """Gets the content with boto3 in threads, not verified."""
        list(self.threads.map(self._get, range(S3_OBJECTS)))

    def _put(self, i: int, content: bytes) -> None:
        self.client.put_object(
            Bucket=versitygw.BUCKET, Key=f"boto3/{self._serial}/{i}", Body=content
        )

    def _get(self, i: int) -> None:
        key = f"boto3/{self._serial}/{i}"
        with self.client.get_object(Bucket=versitygw.BUCKET, Key=key)["Body"] as body:
            body.read()


async def limited(items: list, function: Callable[..., Awaitable[Digest]]) -> list[Digest]:
    """Calls the function with each item, a bounded number at a time."""
    waiting = iter(items)
    results: list[Digest] = []

    async def worker() -> None:
        for item in waiting:
            results.append(await function(item))

    await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))
    return results


async def small_objects(server: versitygw.S3Server, rounds: int) -> list[Comparison]:
    """Compares the store with boto3 as it is mostly used and, without a goal, in threads."""
    bucket = Bucket(server)
    what = f"{S3_OBJECTS} x {S3_OBJECT_BYTES >> 10} KiB"
    rows = []
    for how, put, get, bar in (
        ("threads", bucket.pool_puts, bucket.pool_gets, 0.0),
        ("a loop", bucket.loop_puts, bucket.loop_gets, 3.0),
    ):
        name = f"S3 put, {what}, boto3 in {how}"
        rows.append(await interleaved(name, bucket.our_puts, put, rounds, bar))
        await put(0)
        name = f"S3 get, {what}, boto3 in {how}"
        rows.append(await interleaved(name, bucket.our_gets, get, rounds, bar))
    bucket.close()
    return rows


async def measure(rounds: int, with_s3: bool) -> list[Comparison]:
    """Returns all rows."""
    with tempfile.TemporaryDirectory(prefix="flowmesh-bench-") as name:
        directory = Path(name)
        rows: list[Comparison] = []
        for size, count in ((64 << 20, 4), (1 << 20, 100), (16 << 10, 1000)):
            rows += await filesystem(directory, size, count, rounds)
        program = versitygw.binary()
        if with_s3 and program is None:
            sys.exit("versitygw is missing: run `make bin/versitygw`, or pass --no-s3")
        if with_s3 and program is not None:
            versitygw.set_credentials(os.environ)
            with versitygw.running(program, directory / "s3") as server:
                rows += await small_objects(server, rounds)
    return rows


def main() -> None:
    """Prints the table, writes JSON if requested, and fails where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each pair, at least 5")
    parser.add_argument("--json", type=Path, help="write the values to this file")
    parser.add_argument("--no-s3", action="store_true", help="skip the S3 server")
    options = parser.parse_args()
    rows = asyncio.run(measure(max(5, options.rounds), not options.no_s3))
    print(f"{'what':<52} {'ours':>10} {'other':>10} {'ratio':>7} {'bar':>5}")
    for row in rows:
        bar = f"{row.bar:.1f}" if row.bar else "-"
        print(
            f"{row.name:<52} {row.ours_s * 1e3:>7.1f} ms {row.other_s * 1e3:>7.1f} ms "
            f"{row.ratio:>7.2f} {bar:>5}{'' if row.holds else '  MISSED'}"
        )
    if options.json:
        figures = [asdict(r) | {"ratio": r.ratio, "holds": r.holds} for r in rows]
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    if not all(row.holds for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
