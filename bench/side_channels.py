"""Measures how well one tenant can tell from times and answers what another tenant has.

An observer runs, uploads or prompts what another tenant has, and something that no tenant has, in
turns. The AUC says how well its observations of the two can be told apart: 0.5 is a guess. Each
row has a control, in which the same observations must be told apart, or the measurement could see
nothing. Run it with ``make bench-side-channels``; ``--only`` repeats some rows, ``--samples`` and
``--simulated`` change their number. It fails where a bound or a control is missed.
"""

import argparse
import asyncio
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from aiohttp import ClientSession
from auc import Separation, separation
from generate import builtin_model
from laptop_observer import FRESH, KNOWN, OBSERVER, OWNER, LaptopObserver, Samples
from results import ROOT, Result, Table
from simulated_observer import SimulatedObserver

from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_core.sharing.prefix_salts import PrefixSalts
from flowmesh_core.sharing.scopes import namespace_scope

sys.path[:0] = [str(ROOT / "tests/flowmesh_store")]

import versitygw  # noqa: E402 - found on the path set above

CONTROL = 0.9
PREFIX_WORDS = 1024
"""Each word is a token of the built-in model."""
SIMULATED, LAPTOP = 0.55, 0.60
"""Bounds of the upper end of the interval, by the number of samples that is usual there."""


@dataclass(frozen=True, slots=True)
class Row:
    """A side channel, its measurement and that of its control."""

    name: str
    found: Separation
    bound: float
    control: Separation | None = None

    @property
    def holds(self) -> bool:
        """Whether the bound is kept, and the control seen."""
        seen = self.control is None or self.control.auc >= CONTROL
        return seen and self.found.upper <= self.bound

    @property
    def cells(self) -> list[str]:
        """The row of the table."""
        control = self.control
        return [
            self.name,
            f"{self.found.samples:,} + {self.found.samples:,}",
            f"{self.found.auc:.3f} ({self.found.judge})",
            f"{self.found.upper:.3f}",
            f"{self.bound:.2f}",
            "-" if control is None else f"{control.auc:.3f} ({control.judge})",
            "yes" if self.holds else "**no**",
        ]


def judged(samples: Samples) -> Separation:
    """Returns how well known and fresh are distinguished."""
    return separation(samples[KNOWN], samples[FRESH])


async def simulated(arguments: argparse.Namespace) -> list[Row]:
    """Run time of a step that another tenant ran, in virtual time."""

    def found(sharing: str) -> Separation:
        return judged(SimulatedObserver(arguments.simulated, sharing=sharing).samples())

    name = "run time without a policy, simulator"
    return [Row(name, found("private"), SIMULATED, found("group"))]


async def run_times(arguments: argparse.Namespace) -> list[Row]:
    """Run time of a step that another tenant ran, on a directory."""
    rows, samples = [], arguments.samples
    async with _observer() as observer:
        for upload, what in ((False, "one step"), (True, "a query over uploaded rows")):
            await observer.share(False)
            found = judged(await observer.runs(samples, own=False, upload=upload))
            await observer.share(True)
            control = judged(await observer.runs(samples, own=False, upload=upload))
            rows.append(Row(f"run time without a policy, laptop, {what}", found, LAPTOP, control))
    return rows


async def upload_times(arguments: argparse.Namespace) -> list[Row]:
    """Time and answer of an upload of what another tenant has, on an S3 server."""
    program = versitygw.binary()
    if program is None:
        raise SystemExit("versitygw is missing: run `make bin/versitygw`")
    versitygw.set_credentials(os.environ)
    with (
        tempfile.TemporaryDirectory(prefix="flowmesh-bench-") as folder,
        versitygw.running(program, Path(folder)) as server,
    ):
        async with _observer(server.url("fabric")) as observer:
            found = judged(await observer.uploads(arguments.samples, own=False))
            control = judged(await observer.uploads(arguments.samples, own=True))
    return [Row("upload of a model of 9 MiB, S3", found, LAPTOP, control)]


async def prefixes(arguments: argparse.Namespace) -> list[Row]:
    """Time to the first token of a prompt whose beginning another tenant has sent."""
    with tempfile.TemporaryDirectory(prefix="flowmesh-bench-") as folder:
        model = arguments.model or builtin_model(Path(folder))
        answer = Path(folder, "answer.json")
        salts = PrefixSalts(KeyRing.of(secrets.token_bytes(32)))
        job = {
            "model": str(model),
            "pairs": arguments.prefixes,
            "words": PREFIX_WORDS,
            "memory_mib": 4096,
            "salts": [salts(namespace_scope(name)) for name in (OWNER, OBSERVER)],
            "answer": str(answer),
        }
        command = [sys.executable, str(Path(__file__).with_name("prefix_observer.py"))]
        await asyncio.to_thread(
            subprocess.run, command, input=json.dumps(job).encode(), check=True, capture_output=True
        )
        taken = json.loads(await asyncio.to_thread(answer.read_bytes))
    times = {kind: [{"seconds": s["seconds"]} for s in taken[kind]] for kind in taken}
    found, control = (separation(times[kind], times["fresh"]) for kind in ("others", "own"))
    return [Row(f"prefix of {PREFIX_WORDS} tokens, {model.name}", found, LAPTOP, control)]


@asynccontextmanager
async def _observer(store: str = "") -> AsyncIterator[LaptopObserver]:
    with tempfile.TemporaryDirectory(prefix="flowmesh-bench-") as folder:
        async with ClientSession() as http:
            observer = LaptopObserver(Path(folder), http, store)
            await observer.start()
            try:
                yield observer
            finally:
                await observer.stop()


PARTS: dict[str, Callable[[argparse.Namespace], Awaitable[list[Row]]]] = {
    "simulated": simulated,
    "runs": run_times,
    "uploads": upload_times,
    "prefixes": prefixes,
}


def show(rows: list[Row], result: Result) -> None:
    """Writes the table."""
    missed = [row.name for row in rows if not row.holds]
    result.tables = [
        Table(
            "What an observer can tell of another tenant's content and runs",
            ["channel", "samples", "AUC (judge)", "upper", "bound", "control", "holds"],
            [row.cells for row in rows],
            [
                "*Upper* is the end of the 95% interval. Features are chosen and trained on one "
                "half of the samples and judged on the other.",
                "**not held by: " + ", ".join(missed) + "**." if missed else "All held.",
            ],
        )
    ]
    result.figures = {"rows": [asdict(row) for row in rows]}


async def run(arguments: argparse.Namespace) -> bool:
    """Measures the chosen parts; returns whether all held."""
    result, rows = Result("side-channels"), list[Row]()
    for name in arguments.only or PARTS:
        for row in await PARTS[name](arguments):
            print(" | ".join(row.cells), file=sys.stderr, flush=True)
            rows.append(row)
    show(rows, result)
    result.save(keep=not arguments.draft)
    return all(row.holds for row in rows)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("--samples", type=int, default=500, help="of each kind on real parts")
    given.add_argument("--simulated", type=int, default=2000, help="of each kind in the simulator")
    given.add_argument("--prefixes", type=int, default=500, help="of each kind of prompt")
    given.add_argument("--model", type=Path, help="a directory; the built-in model by default")
    given.add_argument("--only", nargs="*", choices=PARTS, help="measure these parts")
    given.add_argument("--draft", action="store_true", help="only print; save nothing")
    return given


if __name__ == "__main__":
    if not asyncio.run(run(parser().parse_args())):
        sys.exit(1)
