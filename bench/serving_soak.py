"""Serves at 70 % of an engine's capacity for hours: memory, series and answers stay as they are.

``make bench-serving-soak`` runs for two hours, ``ARGS="--minutes 20"`` for twenty minutes, in which
a router still grows: its allocator's pages level off after some thirty. A leader, two workers and
two routers are processes of their own; the engine is ``test.echo``, and beside it two Python
components pass arrays in shared memory. Each answer is compared with its question. It ends with 1
where an answer is wrong, double or missing, where metrics get new series, where a value is left in
memory, or where a router, a hub or an agent grows by 1 MB an hour.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from e2e.harness.stability import Sample, lows, slope_per_s
from tests.flowmesh_serving.echo_fabric import EchoFabric, Part, echo_fabric
from tests.flowmesh_serving.request_load import ArrayLoad, EchoLoad, RequestLoad

CAPACITY = 80.0
"""Requests a second: two workers, four at once each, a tenth of a second each."""
SHARE = 0.7
MB = 1e6
SLOPE_MB_PER_H = 1.0
NOISE_MB = 0.5
"""What allocators keep more or less of: growth below it is none, however short the run."""
ARRAY_RATE = 5.0
_EVERY_S = 5.0
_FREED_WITHIN_S = 30.0
_WARM = 1 / 3
_USER_CODE = ("host", "sandbox")
"""What processes that are not judged are called: their memory is that of an engine, or a user's."""


def main() -> int:
    """Soaks, prints the figures, and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    seconds = 60.0 * parser.parse_args().minutes
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_soak(Path(folder), seconds))


async def _soak(root: Path, seconds: float) -> int:
    async with echo_fabric(root, with_arrays=True) as fabric:
        pids = await _pids(fabric)
        processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        memory: dict[str, list[Sample]] = {name: [] for name in processes}
        loads = (
            EchoLoad(fabric, rate=SHARE * CAPACITY, text="rest rest"),
            ArrayLoad(fabric, rate=ARRAY_RATE),
        )
        loop = asyncio.get_running_loop()
        began_s, series = loop.time(), set[str]()
        async with loads[0].running(), loads[1].running():
            while (at_s := loop.time() - began_s) < seconds:
                for name, process in processes.items():
                    memory[name].append((at_s, process.memory_info().rss))
                if not series and at_s > seconds * _WARM:
                    series = await _series(fabric)
                await asyncio.sleep(_EVERY_S)
            new_series = await _series(fabric) - series
        broken = [f"new series: {name}" for name in sorted(new_series)]
        broken += [f"not freed: {value}" for value in await _left(fabric)]
        if await _pids(fabric) != pids:
            broken.append("a process has ended")
    print(f"{len(series)} series, {len(new_series)} new")
    return _report(loads, memory, seconds, broken)


async def _pids(fabric: EchoFabric) -> dict[str, int]:
    """Returns the processes by what they are called in the report."""
    found = {name: process.pid for name, process in fabric.routers.items()}
    for worker in fabric.fabric.workers:
        for part in Part:
            pids = await fabric.pids_of(worker, part)
            found |= {f"{part.name.lower()} {n} of {worker}": p for n, p in enumerate(sorted(pids))}
    return found


async def _series(fabric: EchoFabric) -> set[str]:
    """Returns the series of both routers, by name, labels and router."""
    return {
        f"{line.rpartition(' ')[0]} of {name}"
        for name, url in fabric.urls.items()
        for line in await fabric.metrics(url)
        if not line.startswith("#")
    }


async def _left(fabric: EchoFabric) -> list[str]:
    """Returns the values that are still in memory some time after the last request."""
    until_s = asyncio.get_running_loop().time() + _FREED_WITHIN_S
    while (found := fabric.values()) and asyncio.get_running_loop().time() < until_s:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    return found


def slopes_of(memory: Mapping[str, list[Sample]], seconds: float) -> dict[str, float]:
    """Returns by how many MB an hour each process grows, once it is warm.

    Args:
        memory: bytes by process.
        seconds: of the soak.
    """
    return {
        name: 3600
        / MB
        * slope_per_s(lows([s for s in samples if s[0] > seconds * _WARM], max(15.0, seconds / 60)))
        for name, samples in memory.items()
    }


def growing(slopes: Mapping[str, float], seconds: float) -> list[str]:
    """Returns what is wrong with these slopes, a sentence for each process that grows.

    Args:
        slopes: in MB an hour.
        seconds: of the soak.
    """
    judged_h = (1 - _WARM) * seconds / 3600
    most = max(SLOPE_MB_PER_H, NOISE_MB / judged_h)
    return [
        f"{name} grows by {slope:.2f} MB/h: expected below {most:.2f}"
        for name, slope in slopes.items()
        if slope >= most
    ]


def _report(
    loads: Sequence[RequestLoad],
    memory: Mapping[str, list[Sample]],
    seconds: float,
    broken: list[str],
) -> int:
    for load in loads:
        broken += [f"wrong: {w}" for w in load.wrong] + [
            f"failed: {f}" for f in load.failed.values()
        ]
        broken += [f"double: {d!r}" for d in load.doubled]
    slopes = slopes_of(memory, seconds)
    for name, slope in slopes.items():
        print(f"{name:20} {memory[name][-1][1] / MB:8.1f} MB {slope:+8.2f} MB/h")
    slopes = {name: s for name, s in slopes.items() if not name.startswith(_USER_CODE)}
    broken += growing(slopes, seconds)
    for line in broken[:20]:
        print(line)
    steepest = max(slopes, key=slopes.__getitem__)
    right, refused = sum(load.ok for load in loads), sum(load.refused for load in loads)
    wrong, failed = sum(len(x.wrong) for x in loads), sum(len(x.failed) for x in loads)
    print(
        f"soak of {seconds:.0f} s: {right} right, {wrong} wrong, {failed} failed, {refused} "
        f"refused; steepest {steepest} {slopes[steepest]:+.2f} MB/h; {len(broken)} broken bounds"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
