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
    async with contextlib.AsyncExitStack() as stack:
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
        for shape in arguments.shapes:
            await _compare(peers, shape, arguments)


async def _compare(peers: Sequence[Peer], shape: str, arguments: argparse.Namespace) -> None:
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
    before, after = (statistics.median(side) for side in zip(*pairs, strict=True))
    low, middle, high = interval([math.log(b / a) for a, b in pairs])
    print(
        f"{shape} on {arguments.store}: {before:.0f} -> {after:.0f} us an action, "
        f"ratio {middle:.3f} [{low:.3f}, {high:.3f}] of {len(pairs)} pairs",
        flush=True,
    )


def interval(logs: Sequence[float]) -> tuple[float, float, float]:
    """Returns the geometric mean of ratios within its 95% interval, by resampling."""
    draw = random.Random(1)
    means = sorted(statistics.fmean(draw.choices(logs, k=len(logs))) for _ in range(RESAMPLES))
    low, high = means[int(RESAMPLES * 0.025)], means[int(RESAMPLES * 0.975)]
    return math.exp(low), math.exp(statistics.fmean(logs)), math.exp(high)


def _parser() -> argparse.ArgumentParser:
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    given.add_argument("--before", type=Path, required=True, help="the other checkout")
    given.add_argument(
        "--shapes", nargs="+", choices=[*SHAPES, WORKFLOWS], default=["flat", WORKFLOWS]
    )
    given.add_argument("--store", choices=STORES, default="memory")
    given.add_argument("--pairs", type=int, default=30)
    given.add_argument("--count", type=int, default=2_000, help="actions per graph")
    return given


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    asyncio.run(main(_parser().parse_args()))
