"""Compares the control plane's processor time an action in two checkouts, in turns.

Each checkout has its own environment (``make setup``), control plane and workers. They run the same
graphs of no-op actions one after the other, and in each pair the other one begins. Processor time
is that of the control plane's process, read from outside, so that both are measured alike. The
ratio of a pair hardly depends on what else the machine does; a time does.

Run it with ``make bench-dispatch-pairs BEFORE=path``.
"""

import argparse
import asyncio
import contextlib
import math
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dispatch import STORES, store_address
from graphs import LOAD_CHAIN, SHAPES, graph
from peer import Peer
from processor import process_s

ROOT = Path(__file__).resolve().parents[1]
RESAMPLES = 10_000
WORKFLOWS = "workflows"
"""Chains of ten, each submitted as a workflow of its own, all at once."""


async def main(arguments: argparse.Namespace) -> None:
    """Measures and prints each shape's ratio."""
    measured: dict[str, list[list[tuple[float, float]]]] = {s: [] for s in arguments.shapes}
    for start in range(arguments.starts):
        print(f"start {start + 1} of {arguments.starts}", file=sys.stderr, flush=True)
        async with contextlib.AsyncExitStack() as stack:
            peers = await _started(arguments, stack)
            for shape, starts in measured.items():
                starts.append(await _compare(peers, shape, arguments))
    for shape, starts in measured.items():
        before, after = (
            statistics.median(pair[side] for pairs in starts for pair in pairs) for side in (0, 1)
        )
        low, middle, high = interval([[math.log(b / a) for a, b in pairs] for pairs in starts])
        print(
            f"{shape} on {arguments.store}: {before:.0f} -> {after:.0f} us an action, "
            f"ratio {middle:.3f} [{low:.3f}, {high:.3f}] "
            f"of {arguments.pairs} pairs in each of {len(starts)} starts",
            flush=True,
        )


async def _started(
    arguments: argparse.Namespace, stack: contextlib.AsyncExitStack
) -> Sequence[Peer]:
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flowmesh-pairs-")))
    peers = []
    for name, checkout in (("before", arguments.before.resolve()), ("after", ROOT)):
        (home / name).mkdir()
        address = store_address(arguments.store, home / name, stack)
        python = str(checkout / ".venv" / "bin" / "python")
        script = str(checkout / "bench" / "dispatch_fabric.py")
        peer = await asyncio.to_thread(Peer, python, script, address, str(home / name))
        stack.callback(peer.stop)
        peers.append(peer)
    return peers


async def _compare(
    peers: Sequence[Peer], shape: str, arguments: argparse.Namespace
) -> list[tuple[float, float]]:
    chains = max(1, arguments.count // LOAD_CHAIN)
    if shape == WORKFLOWS:
        tasks = chains * LOAD_CHAIN
        order = {"do": "load", "rate": chains * 1e6, "seconds": 1e-6, "seed": 1}
    else:
        tasks = sum(map(len, graph(shape, arguments.count)))
        order = {"do": "graph", "shape": shape, "count": arguments.count}
    pairs: list[tuple[float, float]] = []
    for number in range(arguments.pairs):
        times = [0.0, 0.0]
        for side in (0, 1) if number % 2 else (1, 0):
            began = process_s(peers[side].pid)
            await peers[side].ask(**order)
            times[side] = (process_s(peers[side].pid) - began) / tasks * 1e6
        pairs.append((times[0], times[1]))
        text = f"{shape} {number + 1}: {times[0]:.0f} {times[1]:.0f} us"
        print(text, file=sys.stderr, flush=True)
    return pairs


def interval(starts: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Returns the geometric mean of ratios within its 95% interval.

    Starts are drawn, and pairs within each: the ratio of two processes differs from one start to
    the next by more than the pairs of one start do among themselves.

    Args:
        starts: logarithms of the ratios, by start.
    """
    draw = random.Random(1)
    means = sorted(
        statistics.fmean(
            log
            for pairs in draw.choices(starts, k=len(starts))
            for log in draw.choices(pairs, k=len(pairs))
        )
        for _ in range(RESAMPLES)
    )
    low, high = means[int(RESAMPLES * 0.025)], means[int(RESAMPLES * 0.975)]
    middle = statistics.fmean(log for pairs in starts for log in pairs)
    return math.exp(low), math.exp(middle), math.exp(high)


def _parser() -> argparse.ArgumentParser:
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    given.add_argument("--before", type=Path, required=True, help="the other checkout")
    given.add_argument(
        "--shapes", nargs="+", choices=[*SHAPES, WORKFLOWS], default=["flat", WORKFLOWS]
    )
    given.add_argument("--store", choices=STORES, default="memory")
    given.add_argument("--starts", type=int, default=8, help="how often both are started anew")
    given.add_argument("--pairs", type=int, default=8, help="pairs in each start")
    given.add_argument("--count", type=int, default=2_000, help="actions per graph")
    return given


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    asyncio.run(main(_parser().parse_args()))
