"""Compares the first read of a chunk, which compares its rows with their identity, with later ones.

Decoding is what an engine waits for without the comparison: from a Parquet file in memory to Python
rows (``DatasetInput.rows``), or to an Arrow table (``DatasetInput.table``). A first read does the
same and compares the rows' digests with the manifest; a later one looks up that this was done.
Goal: a first read takes at most 40% longer than decoding to rows, and a later one as long.

Times are processor time. The sides take turns within a pair, in alternating order, and each ratio
is of one pair, so that a slow moment of the machine affects both. Run it with
``make bench-first-read``.
"""

import argparse
import gc
import math
import random
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("api", "core", "store", "worker")]

from results import Result, Table  # noqa: E402 - found on the path set above

from flowmesh_store.datasets import as_single_chunk  # noqa: E402
from flowmesh_worker.data.verified_chunks import VerifiedChunks  # noqa: E402
from flowmesh_worker.engine_api import DatasetInput  # noqa: E402

ROWS = 32
"""The average number of rows of a chunk."""
BOUND = 1.4
BATCH_S = 4e-3
"""How long the reads of one side of a pair take in all, at least."""
SCOPE = "ns-default"
Read = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Of processor times: the median over pairs, with its 95% interval."""

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        """Returns the ratio as the tables show it."""
        return f"{self.middle:.2f} [{self.low:.2f}, {self.high:.2f}]"


def shapes() -> Mapping[str, list[dict[str, Any]]]:
    """Returns one chunk of rows of each shape."""
    draw = random.Random(1)
    words = [draw.randbytes(draw.randrange(1, 5)).hex() for _ in range(2000)]

    def text(characters: int) -> str:
        return " ".join(draw.choices(words, k=characters // 4))[:characters]

    def chat() -> list[dict[str, str]]:
        return [{"role": role, "content": text(300)} for role in ("user", "assistant") * 2]

    def vector(size: int) -> list[float]:
        return [float32(draw.gauss(0.0, size**-0.5)) for _ in range(size)]

    makers: Mapping[str, Callable[[int], dict[str, Any]]] = {
        "short texts": lambda i: {"text": f"a few words about number {i}"},
        "texts of 2 KB": lambda _: {"text": text(2_000)},
        "texts of 20 KB": lambda _: {"text": text(20_000)},
        "chats": lambda _: {"messages": chat()},
        "integers": lambda _: {name: draw.randrange(10**6) for name in "abcd"},
        "floats": lambda _: {name: draw.random() for name in "abcd"},
        "lists of 512 integers": lambda _: {"tokens": draw.choices(range(32_000), k=512)},
        "vectors of 384 float32": lambda _: {"vector": vector(384)},
        "vectors of 384 float64": lambda _: {"vector": [draw.random() for _ in range(384)]},
        "images of 20 KB": lambda _: {"image": draw.randbytes(20_000)},
    }
    return {name: [{"id": i, **make(i)} for i in range(ROWS)] for name, make in makers.items()}


def float32(value: float) -> float:
    """Returns the nearest number of 32 bits."""
    found: float = struct.unpack("f", struct.pack("f", value))[0]
    return found


def pairs(one: Read, other: Read, count: int) -> list[tuple[float, float]]:
    """Returns the processor seconds of a read of each side, of so many pairs."""
    repeat = max(1, math.ceil(BATCH_S / spent_s(one, 1)))
    found = []
    for number in range(count):
        gc.collect()
        if number % 2:
            second, first = spent_s(other, repeat), spent_s(one, repeat)
        else:
            first, second = spent_s(one, repeat), spent_s(other, repeat)
        found.append((first / repeat, second / repeat))
    return found


def spent_s(read: Read, times: int) -> float:
    """Returns the processor seconds of this process while it reads so many times."""
    began = time.process_time()
    for _ in range(times):
        read()
    return time.process_time() - began


def ratio(found: Sequence[tuple[float, float]]) -> Ratio:
    """Returns the second side's time as a multiple of the first's."""
    ratios = sorted(second / first for first, second in found)
    middle, reach = len(ratios) / 2, 0.98 * math.sqrt(len(ratios))
    low = ratios[max(0, math.floor(middle - reach))]
    high = ratios[min(len(ratios) - 1, math.ceil(middle + reach))]
    return Ratio(low, statistics.median(ratios), high)


class Shape:
    """One chunk, and the ways to read it."""

    def __init__(self, rows: list[dict[str, Any]], verified: VerifiedChunks) -> None:
        """Writes the chunk, and remembers it as one whose rows were compared."""
        self.manifest, blobs = as_single_chunk(rows)
        [self._data] = blobs.values()
        self._verified = verified
        verified.add(self.manifest, (0,), (SCOPE,))
        assert self.first().rows() == rows

    def first(self) -> DatasetInput:
        """Returns the chunk as one whose rows were not compared."""
        return DatasetInput(self.manifest, (self._data,))

    def later(self) -> DatasetInput:
        """Returns the chunk as one whose rows were compared, after looking that up."""
        numbers = self._verified.numbers(self.manifest, (SCOPE,))
        return DatasetInput(self.manifest, (self._data,), set(numbers))

    def decoded(self) -> DatasetInput:
        """Returns the chunk as one whose rows need no comparison."""
        return DatasetInput(self.manifest, (self._data,), {0})

    def sides(self) -> Mapping[str, tuple[Read, Read]]:
        """Returns what is compared: decoding, and a read that decodes and does more."""
        return {
            "rows": (lambda: self.decoded().rows(), lambda: self.first().rows()),
            "table": (lambda: self.decoded().table(), lambda: self.first().table()),
            "later": (lambda: self.decoded().rows(), lambda: self.later().rows()),
        }


def measure(count: int, names: Sequence[str], result: Result) -> bool:
    """Adds the table; returns whether the goal is reached for each shape."""
    lines, holds = [], True
    with tempfile.TemporaryDirectory(prefix="flowmesh-first-read-") as home:
        verified = VerifiedChunks(Path(home) / "verified")
        for name, rows in shapes().items():
            if names and name not in names:
                continue
            shape = Shape(rows, verified)
            found = {what: pairs(*reads, count) for what, reads in shape.sides().items()}
            ratios = {what: ratio(seconds) for what, seconds in found.items()}
            holds = holds and ratios["rows"].high <= BOUND
            times = {what: medians_us(seconds) for what, seconds in found.items()}
            result.figures[name] = {"us": times, "ratio": {w: str(r) for w, r in ratios.items()}}
            size = f"{shape.manifest.chunks[0].bytes / 1000:.0f}"
            cells = [f"{times[what][n]:,.0f}" for what in ("rows", "table") for n in (0, 1)]
            cells = [*cells[:2], str(ratios["rows"]), *cells[2:], str(ratios["table"])]
            lines.append([name, size, *cells, str(ratios["later"])])
            print(*lines[-1], sep=" | ", file=sys.stderr, flush=True)
        verified.close()
    title = f"First reads of a chunk of {ROWS} rows, as multiples of decoding it; {count} pairs"
    columns = ["rows of", "KB", "to rows, µs", "first read, µs", "ratio"]
    columns += ["to a table, µs", "first read, µs", "ratio", "later read to rows"]
    result.tables.append(Table(title, columns, lines))
    return holds


def medians_us(found: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Returns the median microseconds of either side."""
    first, second = (statistics.median(side) * 1e6 for side in zip(*found, strict=True))
    return first, second


def main() -> None:
    """Prints and saves the table, and fails where the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=60, help="pairs of each comparison")
    parser.add_argument(
        "--shapes", nargs="*", default=[], choices=list(shapes()), help="measure these shapes only"
    )
    parser.add_argument("--draft", action="store_true", help="save nothing")
    arguments = parser.parse_args()
    result = Result("first-read")
    holds = measure(arguments.pairs, arguments.shapes, result)
    result.save(keep=not arguments.draft)
    if not holds:
        sys.exit(f"a first read takes longer than {BOUND} times decoding to rows")


if __name__ == "__main__":
    main()
