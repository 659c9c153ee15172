"""Serves at 70 % of an engine's capacity for hours: memory, series and answers stay as they are.

``make bench-serving-soak`` runs for two hours, ``ARGS="--seconds 300"`` for five minutes. A leader,
two workers and two routers are processes of their own; the engine is ``test.echo``. Each answer is
compared with its question. It ends with 1 where an answer is wrong or missing, where metrics get
new series, or, in a run of half an hour or more, where a process grows by 1 MB an hour.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from e2e.harness.stability import Sample, lows, slope_per_s
from tests.flowmesh_serving.echo_fabric import (
    EchoFabric,
    EchoLoad,
    echo_fabric,
)

CAPACITY = 80.0
"""Requests a second: two workers, four at once each, a tenth of a second each."""
SHARE = 0.7
MB = 1e6
SLOPE_MB_PER_H = 1.0
JUDGED_FROM_S = 1800.0
_EVERY_S = 5.0
_WARM = 1 / 3


def main() -> int:
    """Soaks, prints the figures, and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=7200.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_soak(Path(folder), seconds))


async def _soak(root: Path, seconds: float) -> int:
    async with echo_fabric(root) as fabric:
        processes = {name: psutil.Process(pid) for name, pid in _pids(fabric).items()}
        memory: dict[str, list[Sample]] = {name: [] for name in processes}
        load = EchoLoad(fabric, rate=SHARE * CAPACITY, text="rest rest")
        loop = asyncio.get_running_loop()
        began_s, series = loop.time(), 0
        async with load.running():
            while (at_s := loop.time() - began_s) < seconds:
                for name, process in processes.items():
                    memory[name].append((at_s, process.memory_info().rss))
                if not series and at_s > seconds * _WARM:
                    series = await _series(fabric)
                await asyncio.sleep(_EVERY_S)
            new_series = await _series(fabric) - series
    return _report(load, memory, seconds, series, new_series)


def _pids(fabric: EchoFabric) -> dict[str, int]:
    found = {name: process.pid for name, process in fabric.routers.items()}
    for worker in fabric.fabric.workers:
        for part in ("agent", "hub", "host"):
            found[f"{part} of {worker}"] = fabric.pid_of(worker, part)
    return found


async def _series(fabric: EchoFabric) -> int:
    """Returns how many series both routers have."""
    count = 0
    for url in fabric.urls.values():
        async with fabric.http.get(f"{url}/metrics") as response:
            lines = (await response.text()).splitlines()
            count += sum(not line.startswith("#") for line in lines)
    return count


def _report(
    load: EchoLoad,
    memory: Mapping[str, list[Sample]],
    seconds: float,
    series: int,
    new_series: int,
) -> int:
    broken = [f"wrong: {w}" for w in load.wrong] + [f"failed: {f}" for f in load.failed]
    slopes = {}
    for name, samples in memory.items():
        warm = lows([s for s in samples if s[0] > seconds * _WARM], max(15.0, seconds / 60))
        slopes[name] = slope_per_s(warm) * 3600 / MB
        print(f"{name:20} {samples[-1][1] / MB:8.1f} MB {slopes[name]:+8.2f} MB/h")
        if seconds >= JUDGED_FROM_S and slopes[name] >= SLOPE_MB_PER_H:
            broken.append(f"{name} grows by {slopes[name]:.2f} MB/h")
    if new_series:
        broken.append(f"{new_series} new series")
    for line in broken[:20]:
        print(line)
    steepest = max(slopes, key=slopes.__getitem__)
    print(
        f"soak of {seconds:.0f} s: {load.ok} right, {len(load.wrong)} wrong, {len(load.failed)} "
        f"failed, {load.refused} refused; steepest {steepest} {slopes[steepest]:+.2f} MB/h; "
        f"{series} series, {new_series} new"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
