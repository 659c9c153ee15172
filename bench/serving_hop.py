"""Measures a hop: what an array needs from one component to the next, beside pickle over TCP.

Two trusted components, each in a host of its own, run on one worker, or on two. The first notes
the time when it returns, the second when it begins, and once more when it has read every page, as a
copy through TCP has too; both read the machine's monotonic clock. The peer is what a program of two
processes does by itself: pickle, its bytes over loopback TCP, and unpickle. One copy into memory
that is there already shows what the machine can do. Rounds take turns. Run it with ``make
bench-serving-hop``.
"""

import argparse
import asyncio
import multiprocessing
import pickle
import socket
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import numpy as np
from pairs import interval, median_ratio
from results import SERVING_PAGE, Result, Table
from serving_chain_fabric import SERVICE, TOKEN, service_of, started

from flowmesh_worker.ipc.read_mappings import ReadMappings
from flowmesh_worker.ipc.reusable_files import ReusableFiles
from flowmesh_worker.ipc.shared_value import SharedValue

CODE = """
import time
import numpy as np

arrays = {}

def make(batch):
    made = [arrays.setdefault(call["n"], np.ones(call["n"], np.uint8)) for call in batch]
    return [{"array": array, "at": time.monotonic()} for array in made]

def take(batch):
    begun = time.monotonic()
    sums = [int(call["made"]["array"][::4096].sum()) for call in batch]
    read = time.monotonic()
    return [{"begun_ms": (begun - call["made"]["at"]) * 1e3,
             "read_ms": (read - call["made"]["at"]) * 1e3} for call in batch]
"""
PLACES: dict[str, Sequence[Sequence[str]]] = {
    "two hosts of a worker": [("one", "two")],
    "two workers": [("one",), ("two",)],
}
SIZES = {"1 KiB": 1 << 10, "1 MiB": 1 << 20, "16 MiB": 16 << 20}
PICKLE, COPY = "pickle over TCP", "one copy in one process"
_WARM = 5
_PAGE_BYTES = 4096
_READY_S = 60.0


class Hop(NamedTuple):
    """Milliseconds until the second component began, and until it had read the array."""

    begun_ms: float
    read_ms: float


Found = dict[tuple[str, str], list[Hop]]


def spec() -> dict[str, Any]:
    """Returns the service: two components with a value between them."""
    more = {"trusted": True, "ownHost": True, "batch": {"max": 1}}
    return {
        "components": {
            "one": {"python": {"code": CODE, "function": "make"}, **more},
            "two": {"python": {"code": CODE, "function": "take"}, **more},
        },
        "stages": [
            {"name": "made", "component": "one", "inputs": {"n": "request.n"}},
            {"name": "used", "component": "two", "inputs": {"made": "made"}},
        ],
        "reply": {"hop": "used"},
    }


class Service:
    """One placement of the service."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._url = f"http://127.0.0.1:{port}/v1/services/{SERVICE}:invoke"

    async def ask(self, size: int) -> Hop | None:
        """Returns the times of one array; None where the request fails."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with self._session.post(self._url, json={"n": size}, headers=headers) as response:
            if response.status != 200:
                return None
            return Hop(**(await response.json())["hop"])

    async def until_ready(self) -> None:
        """Waits until it answers."""
        async with asyncio.timeout(_READY_S):
            while await self.ask(1) is None:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.05)

    async def hops(self, size: int, count: int) -> list[Hop]:
        """Returns the times of so many arrays; none where this size cannot pass."""
        found = [await self.ask(size) for _ in range(_WARM + count)][_WARM:]
        return [hop for hop in found if hop is not None]


def take_pickled(ready: Connection, results: Connection) -> None:
    """Receives arrays over TCP until the sender ends, in a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ready.send(listener.getsockname()[1])
        connection, _ = listener.accept()
        stream = connection.makefile("rb")
    while head := stream.read(8):
        made = pickle.loads(stream.read(int.from_bytes(head)))
        begun = time.monotonic()
        int(made["array"][::_PAGE_BYTES].sum())
        results.send(((begun - made["at"]) * 1e3, (time.monotonic() - made["at"]) * 1e3))


class Pickled:
    """The peer: two processes, pickle and loopback TCP."""

    def __init__(self) -> None:
        self._results, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=take_pickled, args=(theirs, theirs), daemon=True
        )
        self._process.start()
        self._connection = socket.create_connection(("127.0.0.1", self._results.recv()))

    def hops(self, size: int, count: int) -> list[Hop]:
        """Returns the times of so many arrays."""
        array, found = np.ones(size, np.uint8), []
        for _ in range(_WARM + count):
            data = pickle.dumps({"array": array, "at": time.monotonic()}, protocol=5)
            self._connection.sendall(len(data).to_bytes(8))
            self._connection.sendall(data)
            found.append(Hop(*self._results.recv()))
        return found[_WARM:]

    def stop(self) -> None:
        """Ends it."""
        self._connection.close()
        self._process.join()


def copied(size: int, count: int) -> list[Hop]:
    """Returns the times of copies within this process, which nothing has to read."""
    array, target, found = np.ones(size, np.uint8), np.ones(size, np.uint8), []
    for _ in range(_WARM + count):
        began = time.monotonic()
        target[:] = array
        took_ms = (time.monotonic() - began) * 1e3
        found.append(Hop(took_ms, took_ms))
    return found[_WARM:]


def parts(count: int) -> Table:
    """Returns the processor time of what a hop in shared memory consists of, in this process."""
    rows = []
    for name, size in list(SIZES.items())[1:]:
        array, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
        value = SharedValue.sealed([memoryview(array)])
        prepared = [SharedValue.spare(size) for _ in range(count)]
        spares = iter(prepared)
        files, mappings = ReusableFiles(), ReadMappings()
        reusable = files.value_of([memoryview(array)])

        def copy(array: Any = array, target: Any = target) -> None:
            target[:] = array

        def seal(array: Any = array) -> None:
            SharedValue.sealed([memoryview(array)])

        def fill(array: Any = array, spares: Iterator[SharedValue] = spares) -> None:
            SharedValue.sealed([memoryview(array)], next(spares))

        def read(value: SharedValue = value) -> None:
            int(np.frombuffer(value.view(), np.uint8)[::_PAGE_BYTES].sum())

        def write_again(array: Any = array, files: ReusableFiles = files) -> None:
            files.value_of([memoryview(array)])

        def read_again(reusable: SharedValue = reusable, mappings: ReadMappings = mappings) -> None:
            int(np.frombuffer(mappings.view(reusable), np.uint8)[::_PAGE_BYTES].sum())

        acts = (copy, seal, fill, read, write_again, read_again)
        found = [f"{_processor_ms(act, count):.2f}" for act in acts]
        rows.append([name, *found])
    columns = [
        *("array", "one copy", "create, fill, seal and close", "fill and seal what is prepared"),
        *("map and read each page", "write a file again", "read each page of a kept mapping"),
    ]
    return Table("Processor time of the parts, median ms", columns, rows)


def _processor_ms(act: Callable[[], None], count: int) -> float:
    took = []
    for _ in range(count):
        began_s = time.process_time()
        act()
        took.append((time.process_time() - began_s) * 1e3)
    return statistics.median(took)


async def measure(rounds: int, count: int) -> Found:
    """Returns the times by contestant and size."""
    found: Found = defaultdict(list)
    for number in range(rounds):
        pickled = await asyncio.to_thread(Pickled)
        for name, size in SIZES.items():
            found[COPY, name] += copied(size, count)
            found[PICKLE, name] += await asyncio.to_thread(pickled.hops, size, count)
        await asyncio.to_thread(pickled.stop)
        for place, workers in PLACES.items():
            with tempfile.TemporaryDirectory(prefix="fm-hop-") as folder:
                async with (
                    started(Path(folder), service_of(spec()), workers) as chain,
                    aiohttp.ClientSession() as session,
                ):
                    service = Service(session, chain.port)
                    await service.until_ready()
                    for name, size in SIZES.items():
                        found[place, name] += await service.hops(size, count)
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return found


def table(found: Found) -> Table:
    """Returns the medians."""
    columns = ["array", "way", "begins, p50 ms", "is read, p50 ms", "p99 ms", f"{PICKLE} beside it"]
    rows = []
    for size in SIZES:
        for way in (COPY, PICKLE, *PLACES):
            hops = found[way, size]
            if not hops:
                rows.append([size, way, "cannot pass", "", "", ""])
                continue
            read, peers = [h.read_ms for h in hops], [h.read_ms for h in found[PICKLE, size]]
            same = way in {PICKLE, COPY} or len(read) != len(peers)
            rows.append(
                [
                    size,
                    way,
                    f"{statistics.median(h.begun_ms for h in hops):.2f}",
                    f"{statistics.median(read):.2f}",
                    f"{statistics.quantiles(read, n=100)[98]:.1f}",
                    "" if same else interval(median_ratio(peers, read), ".1f"),
                ]
            )
    return Table("An array from one component to the next", columns, rows)


def main() -> None:
    """Prints the result and writes it to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="starts of each contestant")
    parser.add_argument("--count", type=int, default=40, help="arrays of each size in a round")
    parser.add_argument("--draft", action="store_true", help="only print; save nothing")
    given = parser.parse_args()
    result = Result("serving-hop", page=SERVING_PAGE)
    found = asyncio.run(measure(given.rounds, given.count))
    result.tables += [table(found), parts(given.count)]
    result.figures = {f"{way}, {size}": hops for (way, size), hops in found.items()}
    result.save(keep=not given.draft)


if __name__ == "__main__":
    main()
