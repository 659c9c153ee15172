"""Fetches a large blob from an S3 server that gives each connection a part of the network.

Object stores do: Amazon's performance guidelines name 85 to 90 MB/s a request. Here a relay before
a real S3 server lets as many bytes a second through each connection as ``--rate`` says, so that
connections add up as they do there, whatever the machine. A worker's fetch, which reads pieces at
the same time, takes turns with one request for all, as before, and with boto3's ``download_file``,
which reads parts in ten threads. ``make bench-fetch-large`` writes the table.
"""

import argparse
import asyncio
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
import boto3
from botocore.config import Config
from pairs import interval, median_ratio
from results import ROOT, Result, Table, spread

sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "flowmesh_store")]

import versitygw  # noqa: E402 - found on the path set above
from tests.blob_views import SCOPE  # noqa: E402
from tests.served_bucket import attempt_token, served  # noqa: E402

from flowmesh_store.blob_service.access import SignedAccess  # noqa: E402
from flowmesh_store.blob_service.blobs import ServiceBlobs  # noqa: E402
from flowmesh_store.blob_service.client import BlobServiceClient  # noqa: E402
from flowmesh_store.hashing import digest_of  # noqa: E402
from flowmesh_store.signed_objects import SignedObjects  # noqa: E402

PIECE_S = 0.02
"""A connection's bytes are let through in pieces of so many seconds."""
OURS, ONE, BOTO3 = "pieces at the same time", "one request for all", "boto3, ten threads"
Fetch = Callable[[Path], Awaitable[Any]]


class OneRequest(SignedObjects):
    """Asks for whole objects, as before."""

    def _request(self, method: str, url: str, **more: Any) -> Any:
        return super()._request(method, url, **{**more, "headers": {}})


async def limited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rate: float) -> None:
    """Passes bytes on until the end, at most ``rate`` a second (0 for no limit)."""
    due_s, step = time.monotonic(), max(4096, int(rate * PIECE_S)) if rate else 1 << 18
    try:
        while data := await reader.read(step):
            writer.write(data)
            await writer.drain()
            if rate:
                due_s = max(due_s, time.monotonic() - PIECE_S) + len(data) / rate
                await asyncio.sleep(due_s - time.monotonic())
    except ConnectionError:
        pass
    finally:
        writer.close()


async def relay(ready: Connection, host: str, port: int, rate: float) -> None:
    """Relays connections to a server; the responses are limited."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, to_server = await asyncio.open_connection(host, port)
        await asyncio.gather(limited(reader, to_server, 0), limited(upstream, writer, rate))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def run_relay(ready: Connection, host: str, port: int, rate: float) -> None:
    """Runs the relay in a process of its own until it is ended."""
    asyncio.run(relay(ready, host, port, rate))


async def times(fetches: dict[str, Fetch], folder: Path, rounds: int) -> dict[str, list[float]]:
    """Returns the seconds of each way, in turns."""
    found: dict[str, list[float]] = {name: [] for name in fetches}
    for number in range(rounds + 1):
        order = list(fetches) if number % 2 else list(reversed(fetches))
        for name in order:
            target = folder / "fetched"
            began_s = time.monotonic()
            await fetches[name](target)
            if number:  # the first round connects
                found[name].append(time.monotonic() - began_s)
            target.unlink()
    return found


async def measure(
    endpoint: str, store_url: str, mib: int, folder: Path, rounds: int
) -> dict[str, list[float]]:
    """Puts a blob of so many MiB, and fetches it in each way."""
    content = os.urandom(mib << 20)
    digest = digest_of(content)
    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1",
        config=Config(max_pool_connections=10, s3={"addressing_style": "path"}),
    )  # fmt: skip
    async with served(store_url, folder) as bucket, aiohttp.ClientSession() as http:
        service = BlobServiceClient(http, bucket.url)

        def blobs(objects: SignedObjects) -> ServiceBlobs:
            return ServiceBlobs(SignedAccess(service, objects), SCOPE, attempt_token())

        ours, whole = blobs(SignedObjects(http)), blobs(OneRequest(http))
        await ours.put(digest, content)
        client.put_object(Bucket=versitygw.BUCKET, Key="boto3", Body=content)

        async def by_boto3(target: Path) -> None:
            await asyncio.to_thread(client.download_file, versitygw.BUCKET, "boto3", str(target))

        fetches: dict[str, Fetch] = {
            OURS: lambda target: ours.fetch(digest, target),
            ONE: lambda target: whole.fetch(digest, target),
            BOTO3: by_boto3,
        }
        found = await times(fetches, folder, rounds)
    client.close()
    return found


def rows_of(label: str, mib: int, found: dict[str, list[float]]) -> list[list[str]]:
    """Returns the rows of one limit."""
    rows = []
    for name, seconds in found.items():
        rate = [mib * (1 << 20) / s / 1e6 for s in seconds]
        ratio = interval(median_ratio(found[ONE], seconds), ".2f")
        rows.append([label, name, spread(seconds), spread(rate, ".0f"), ratio])
    return rows


def main() -> None:
    """Measures with and without the limit, and saves the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256, help="size of the blob")
    parser.add_argument("--rate", type=float, default=20.0, help="MB/s of a connection")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--draft", action="store_true", help="print only")
    given = parser.parse_args()
    program = versitygw.binary()
    if program is None:
        parser.error("versitygw is missing: run `make bin/versitygw`")
    result = Result("fetch-large")
    versitygw.set_credentials(os.environ)
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="flowmesh-fetch-") as name:
        folder = Path(name)
        with versitygw.running(program, folder / "s3") as server:
            host, _, port = server.endpoint.removeprefix("http://").partition(":")
            for rate in (given.rate * 1e6, 0.0):
                ready, theirs = multiprocessing.Pipe()
                process = multiprocessing.get_context("spawn").Process(
                    target=run_relay, args=(theirs, host, int(port), rate), daemon=True
                )
                process.start()
                endpoint = f"http://127.0.0.1:{ready.recv()}"
                url = server.url(f"rate-{rate:.0f}").replace(server.endpoint, endpoint)
                found = asyncio.run(measure(endpoint, url, given.mib, folder, given.rounds))
                process.terminate()
                process.join()
                label = f"{rate / 1e6:.0f} MB/s a connection" if rate else "no limit"
                rows += rows_of(label, given.mib, found)
                result.figures[label] = found
    title = f"A blob of {given.mib} MiB from S3 to the disk, verified (boto3 verifies nothing)"
    columns = ("server", "how", "seconds", "MB/s", "times as fast as one request")
    result.tables = [Table(title, columns, rows)]
    result.save(keep=not given.draft)


if __name__ == "__main__":
    main()
