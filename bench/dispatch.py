"""Measures throughput and latency of no-op actions in the fabric, in Ray and in Dask.

Graphs of four shapes (``graphs``) go in interleaved rounds to a control plane with two worker
processes on each kind of store, and to Ray and Dask with two worker processes each. Every system
runs in its own processes and gets its orders from this one. In the fabric every action is named,
looked up, placed, sent to a worker, run in an engine host, reported, published in the store and
accounted. Then chains are submitted at random times, at half the rate that each system reached.
``--profile`` adds a last round under a profiler.

The cost of a new file is measured before and after, where the stores are (below ``TMPDIR``): it is
a part of every action on the filesystem store, and on some disks it is ten times higher while the
kernel still tracks deleted files (docs/benchmarks.md).

Run it with ``make bench-dispatch``, which makes the peers' environments.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from contestants import Contestant, Load, Rounds
from fabric import MEMORY, WORKERS
from graphs import GROUPS, LOAD_CHAIN, SHAPES, quantile
from peer import Peer, python_of
from results import Result, Table, spread

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "flowmesh_store"))

import versitygw

from flowmesh_store.atomic_files import write_new

PEERS = ("ray", "dask")
STORES = ("filesystem", "memory", "s3")
S3_PART = 5
"""The S3 store gets this many times fewer actions, after all others: its gateway creates and
deletes files on this machine, which on some disks slows down the creation of others."""
BAR = 2.0
AT_ONCE = 60
"""Chains that are submitted at once to find a system's maximum rate."""
FILES = 500
FILE_BYTES = 1000


Found = dict[tuple[str, str], Rounds]


@contextlib.asynccontextmanager
async def _contestants(
    arguments: argparse.Namespace, result: Result, root: Path
) -> AsyncIterator[dict[str, Contestant]]:
    """Yields all systems, started and warm; ends them at the end of the block."""
    found: dict[str, Contestant] = {}
    async with contextlib.AsyncExitStack() as stack:
        for name in arguments.stores:
            folder = root / name
            folder.mkdir()
            address = store_address(name, folder, stack)
            peer = await _started(stack, sys.executable, "dispatch_fabric.py", address, str(folder))
            found[name] = Contestant(peer, S3_PART if name == "s3" else 1)
        for name in arguments.peers:
            peer = await _started(stack, python_of(name), f"dispatch_{name}.py")
            result.versions[name.capitalize()] = peer.ready["version"]
            found[name] = Contestant(peer)
        yield found


async def _started(stack: contextlib.AsyncExitStack, python: str, *script: str) -> Peer:
    peer = await asyncio.to_thread(Peer, python, *script)
    stack.callback(peer.stop)
    return peer


def _new_file_us(directory: Path) -> float:
    """Returns the mean time to create a small file there, in microseconds."""
    directory.mkdir()
    began = time.perf_counter()
    for number in range(FILES):
        write_new(str(directory / str(number)), bytes(FILE_BYTES))
    return (time.perf_counter() - began) / FILES * 1e6


def store_address(store: str, folder: Path, stack: contextlib.AsyncExitStack) -> str:
    """Returns the address of a new store; an S3 server runs until the stack closes."""
    if store == "memory":
        return MEMORY
    if store == "s3":
        program = versitygw.binary()
        if program is None:
            sys.exit("no versitygw: run this by `make bench-dispatch`, or leave s3 out of --stores")
        versitygw.set_credentials(os.environ)
        return stack.enter_context(versitygw.running(program, folder)).url("bench")
    return ""


async def _graphs(contestants: dict[str, Contestant], arguments: argparse.Namespace) -> Found:
    found: Found = {(n, s): Rounds() for s in arguments.shapes for n in contestants}
    for number in range(arguments.rounds):
        for (name, shape), rounds in found.items():
            await contestants[name].graph(shape, arguments.count, rounds)
            label = f"round {number + 1} of {arguments.rounds}: {name}, {shape}"
            print(f"{label}: {rounds.rates[-1]:,.0f}/s", file=sys.stderr, flush=True)
    return found


async def _loads(
    contestants: dict[str, Contestant], arguments: argparse.Namespace
) -> dict[str, Load]:
    """Measures each system at half of the rate that it reaches with many chains at once."""
    most: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(arguments.rounds):
        for name, rates in most.items():
            at_once = Load(rate=AT_ONCE * 1e6)
            await contestants[name].load(at_once, 1e-6, number)
            rates.append(AT_ONCE / max(at_once.latencies_s))
            print(f"{name}: {rates[-1]:.1f} chains/s at most", file=sys.stderr, flush=True)
    loads = {name: Load(statistics.median(rates) / 2) for name, rates in most.items()}
    for number in range(arguments.rounds):
        for name, load in loads.items():
            await contestants[name].load(load, arguments.load_s, number)
    return loads


def _throughput(found: Found, shape: str, names: Sequence[str]) -> list[str]:
    cells = [f"{shape} ({len(GROUPS[shape])})" if shape != "flat" else shape]
    for name in names:
        rounds = found[name, shape]
        cells.append(spread(rounds.rates, ",.0f"))
    ours = found.get(("filesystem", shape))
    for name in (n for n in names if n in PEERS and ours is not None):
        theirs = found[name, shape].rates
        cells.append(spread([a / b for a, b in zip(ours.rates, theirs, strict=True)]))
    return cells


def _write_result(
    found: Found,
    loads: dict[str, Load],
    files_us: Sequence[float],
    arguments: argparse.Namespace,
    result: Result,
) -> None:
    names = [*arguments.stores, *arguments.peers]
    ratios = [f"/ {n.capitalize()}" for n in arguments.peers if "filesystem" in arguments.stores]
    result.tables.append(
        Table(
            f"No-op actions a second, {arguments.count} a graph, {WORKERS} workers, "
            f"{arguments.rounds} rounds in turns: median (least to greatest)",
            ["shape (tasks a group)", *_shown(names), *ratios],
            [_throughput(found, shape, names) for shape in arguments.shapes],
            [
                "The ratios are those of the filesystem store, round by round; the bar is "
                f"{BAR:g} times Ray. A graph is clocked from its acceptance (it is compiled and "
                "durable) to the moment that its end is durable; a peer's from the first call.",
                f"S3 is a gateway on this machine; its graphs have {S3_PART} times fewer actions, "
                "and their rounds come after the others'.",
                f"A new file of {FILE_BYTES:,} bytes took {files_us[0]:.0f} µs before the rounds, "
                f"{files_us[1]:.0f} µs after the others' rounds.",
            ],
        )
    )
    whole = [
        [shape, *(spread(found[n, shape].whole, ",.0f") for n in arguments.stores)]
        for shape in arguments.shapes
    ]
    title = "The same with compiling and accepting the workflow"
    result.tables.append(Table(title, ["shape", *_shown(arguments.stores)], whole))
    processor = [
        [shape, *(spread(found[n, shape].processor_us, ",.0f") for n in arguments.stores)]
        for shape in arguments.shapes
    ]
    title = "CPU time of the control plane, µs an action, from submission to the durable end"
    result.tables.append(Table(title, ["shape", *_shown(arguments.stores)], processor))
    if loads:
        result.tables.append(_half_load(loads, arguments))
    result.figures = {
        "rates": {f"{n} {s}": r.rates for (n, s), r in found.items()},
        "processor_us": {f"{n} {s}": r.processor_us for (n, s), r in found.items()},
        "loads": {n: _figures(load) for n, load in loads.items()},
    }


def _half_load(loads: dict[str, Load], arguments: argparse.Namespace) -> Table:
    rows = []
    for name, load in loads.items():
        chain = [f"{quantile(load.latencies_s, share) * 1e3:.1f} ms" for share in (0.5, 0.99)]
        sent = ["-", "-"]
        if load.waits_s:
            sent = [f"{quantile(load.waits_s, share) * 1e3:.2f} ms" for share in (0.5, 0.99)]
        actions = load.rate * LOAD_CHAIN
        rows.append([*_shown([name]), f"{actions:,.0f}", *chain, *sent])
    return Table(
        f"Half load: chains of {LOAD_CHAIN} at random moments, "
        f"{arguments.rounds} times {arguments.load_s:g} s each",
        ["system", "tasks/s", "chain, p50", "p99", "ready to sent, p50", "p99"],
        rows,
        [
            f"Each gets half of what it did when {AT_ONCE} such chains were handed in at once (the "
            "median of as many rounds). A chain is clocked from the moment "
            "that it was due; in the fabric it is a workflow of its own, handed in, compiled, "
            "written down and, in the end, durable.",
            "*Ready to sent*: from the moment that an action's inputs are known and it was looked "
            "up to its message to a worker; the bars are 1 and 5 ms.",
        ],
    )


def _figures(load: Load) -> dict[str, Any]:
    shares = (0.5, 0.9, 0.99)
    return {
        "tasks_per_s": load.rate * LOAD_CHAIN,
        "chain_s": {s: quantile(load.latencies_s, s) for s in shares},
        "ready_to_sent_s": {s: quantile(load.waits_s, s) for s in shares if load.waits_s},
    }


def _shown(names: Sequence[str]) -> list[str]:
    return [n.capitalize() if n in PEERS else f"fabric, {n}" for n in names]


async def run(arguments: argparse.Namespace) -> None:
    """Runs all rounds and writes the result."""
    result = Result("dispatch")
    with tempfile.TemporaryDirectory(prefix="flowmesh-bench-") as directory:
        root = Path(directory)
        files_us = [_new_file_us(root / "before")]
        async with _contestants(arguments, result, root) as contestants:
            s3 = {name: c for name, c in contestants.items() if name == "s3"}
            others = {name: c for name, c in contestants.items() if name != "s3"}
            found = await _graphs(others, arguments)
            files_us.append(_new_file_us(root / "after"))
            found |= await _graphs(s3, arguments)
            loads = {} if arguments.without_load else await _loads(contestants, arguments)
            if arguments.profile:
                await contestants[arguments.stores[0]].profile(arguments.shapes[0], arguments.count)
        _write_result(found, loads, files_us, arguments, result)
        result.save(keep=not arguments.draft)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    shown = argparse.ArgumentDefaultsHelpFormatter
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=shown)
    given.add_argument("--count", type=int, default=5_000, help="actions per graph")
    given.add_argument(
        "--shapes", nargs="+", choices=SHAPES, default=SHAPES, help="shapes of graphs"
    )
    given.add_argument(
        "--stores", nargs="+", choices=STORES, default=STORES, help="the fabric's stores"
    )
    given.add_argument(
        "--peers", nargs="*", choices=PEERS, default=PEERS, help="systems to compare"
    )
    given.add_argument("--rounds", type=int, default=5, help="interleaved rounds")
    given.add_argument("--load-s", type=float, default=5.0, help="seconds of half load per round")
    given.add_argument("--without-load", action="store_true", help="skip the half load")
    given.add_argument("--profile", action="store_true", help="profile the first store and shape")
    given.add_argument("--draft", action="store_true", help="only print; save nothing")
    return given


if __name__ == "__main__":
    asyncio.run(run(parser().parse_args()))
