"""Measures how well one tenant can tell from times and answers what another tenant has.

An observer runs, uploads or prompts what another tenant has, and something that no tenant has, in
turns. The AUC says how well its observations of the two can be told apart: 0.5 is a guess. Each
row has a control, in which the same observations must be told apart, or the measurement could see
nothing. Run it with ``make bench-side-channels``; ``--only`` measures some parts. Each part has a
section of its own in ``docs/benchmarks.md``, so the others stay as they were measured. It fails
where a bound or a control is missed.
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
from dataclasses import asdict
from pathlib import Path

from aiohttp import ClientSession
from auc import Separation, separation
from channel_rows import Row, table
from generate import BUILTIN
from laptop_observer import FRESH, KNOWN, OBSERVER, OWNER, LaptopObserver, Samples
from results import ROOT, Result
from shallow_model import shallow_model
from simulated_observer import SimulatedObserver

from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_core.sharing.prefix_salts import PrefixSalts
from flowmesh_core.sharing.scopes import namespace_scope

sys.path[:0] = [str(ROOT / "tests/flowmesh_store")]

import versitygw  # noqa: E402 - found on the path set above

PREFIX_WORDS = 1024
"""Each word is a token of the built-in model."""
SIMULATED, LAPTOP = 0.55, 0.60
"""Bounds of the upper end of the interval, by the number of samples that is usual there."""


def judged(samples: Samples) -> Separation:
    """Returns how well known and fresh are distinguished."""
    return separation(samples[KNOWN], samples[FRESH])


async def simulated(arguments: argparse.Namespace) -> list[Row]:
    """Run time of a step that another tenant ran, in virtual time."""

    def found(sharing: str, samples: int) -> Separation:
        return judged(SimulatedObserver(samples, sharing=sharing).samples())

    name = "run time without a policy, simulator"
    control = found("group", arguments.controls)
    return [Row(name, found("private", arguments.simulated), SIMULATED, control)]


async def run_times(arguments: argparse.Namespace) -> list[Row]:
    """Run time of a step that another tenant ran, on a directory."""
    return await _runs(arguments, "run time without a policy, laptop, one step", upload=False)


async def query_times(arguments: argparse.Namespace) -> list[Row]:
    """Run time of a query over rows that another tenant uploaded and queried, on a directory."""
    name = "run time without a policy, laptop, a query over uploaded rows"
    return await _runs(arguments, name, upload=True)


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
            control = judged(await observer.uploads(arguments.controls, own=True))
    return [Row("upload of a model of 9 MiB, S3", found, LAPTOP, control)]


async def prefixes(arguments: argparse.Namespace) -> list[Row]:
    """Time to the first token of a prompt whose beginning another tenant has sent."""
    with tempfile.TemporaryDirectory(prefix="flowmesh-bench-") as folder:
        model = arguments.model or shallow_model(Path(folder))
        answer = Path(folder, "answer.json")
        salts = PrefixSalts(KeyRing.of(secrets.token_bytes(32)))
        job = {
            "model": str(model),
            "pairs": arguments.prefixes,
            "controls": min(arguments.controls, arguments.prefixes),
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
    cached = {kind: max(sample.pop("cached") for sample in taken[kind]) for kind in taken}
    print(f"most tokens from the prefix cache: {cached}", file=sys.stderr)
    found = separation(taken["others"], taken["fresh"])
    control = separation(taken["own"], taken["fresh"])
    what = model.name if arguments.model else f"first layer of {BUILTIN}"
    return [Row(f"prefix of {PREFIX_WORDS:,} tokens, {what}", found, LAPTOP, control)]


async def _runs(arguments: argparse.Namespace, name: str, *, upload: bool) -> list[Row]:
    async with _observer() as observer:
        found = judged(await observer.runs(arguments.samples, upload=upload))
        await observer.share()
        control = judged(await observer.runs(arguments.controls, upload=upload))
    return [Row(name, found, LAPTOP, control)]


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
    "queries": query_times,
    "uploads": upload_times,
    "prefixes": prefixes,
}


async def run(arguments: argparse.Namespace) -> bool:
    """Measures the chosen parts; returns whether all held."""
    held = True
    for name in arguments.only or PARTS:
        result = Result("side-channels", name)
        rows = await PARTS[name](arguments)
        result.tables = [table((PARTS[name].__doc__ or name).rstrip("."), rows)]
        result.figures = {"rows": [asdict(row) for row in rows]}
        result.save(keep=not arguments.draft)
        held = held and all(row.holds for row in rows)
    return held


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("--samples", type=int, default=500, help="of each kind on real parts")
    given.add_argument("--simulated", type=int, default=2000, help="of each kind in the simulator")
    given.add_argument("--controls", type=int, default=100, help="of each kind in a control")
    given.add_argument("--prefixes", type=int, default=500, help="of each kind of prompt")
    given.add_argument("--model", type=Path, help="a directory; a shallow one by default")
    given.add_argument("--only", nargs="*", choices=PARTS, help="measure these parts")
    given.add_argument("--draft", action="store_true", help="only print; save nothing")
    return given


if __name__ == "__main__":
    if not asyncio.run(run(parser().parse_args())):
        sys.exit(1)
