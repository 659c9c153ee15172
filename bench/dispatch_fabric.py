"""The fabric's side of ``bench/dispatch.py``: a control plane on one store, and its workers.

It serves the orders of the peers' scripts (``dispatch_ray.py``) and also returns how long a graph's
acceptance took, and how long every action waited from ready to sent. ``profile`` runs a graph under
a profiler. Arguments: the address of the store and an empty directory.
"""

import asyncio
import cProfile
import json
import pstats
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fabric import Bench
from graphs import LOAD_CHAIN, Group, arrivals, graph
from processor import own_s

PROFILE_LINES = 30
PACKAGES = (
    "flowmesh_api",
    "flowmesh_core",
    "flowmesh_control",
    "flowmesh_store",
    "aiohttp",
    "asyncio",
    "msgspec",
)


class Fabric:
    """Runs graphs in which no action is a hit."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._graphs = 0

    async def graph(self, shape: str, count: int) -> dict[str, Any]:
        """Runs a graph; returns the seconds of its acceptance and from there to its end.

        ``processor_s`` is the CPU time of this process, which is the control plane, for both.
        """
        self._graphs += 1
        self._bench.waits_s.clear()
        groups = list(graph(shape, count))
        processor_s = own_s()
        started = time.monotonic()
        uid = await self._bench.submit(_document(f"{shape}-{self._graphs}", groups))
        accepted = time.monotonic()
        status = await self._bench.ended(uid)
        ended = time.monotonic()
        if status.phase != "Succeeded" or status.executed != sum(map(len, groups)):
            raise RuntimeError(f"{shape}: {status.phase}, {status.executed} executed")
        return {
            "seconds": ended - accepted,
            "acceptance_s": accepted - started,
            "processor_s": own_s() - processor_s,
            "waits_s": self._bench.waits_s,
        }

    async def load(self, rate: float, seconds: float, seed: int) -> dict[str, Any]:
        """Runs chains at random times; returns the seconds from each due time to the end."""
        self._graphs += 1
        self._bench.waits_s.clear()
        due_at: dict[str, float] = {}
        started = time.monotonic()
        moments = arrivals(rate, seconds, seed)
        watching = asyncio.create_task(self._watch(len(moments)))
        async with asyncio.TaskGroup() as group:
            for number, due in enumerate(moments):
                at = started + due
                await asyncio.sleep(max(0.0, at - time.monotonic()))
                group.create_task(self._submit(f"load-{self._graphs}-{number}", at, due_at))
        ended = await watching
        latencies_s = [ended[uid] - at for uid, at in due_at.items()]
        return {"latencies_s": latencies_s, "waits_s": self._bench.waits_s}

    async def profile(self, shape: str, count: int) -> dict[str, Any]:
        """Runs a graph under a profiler and prints the control plane's time by package."""
        profile = cProfile.Profile()
        profile.enable()
        await self.graph(shape, count)
        profile.disable()
        stats = pstats.Stats(profile, stream=sys.stderr)
        by_package: Counter[str] = Counter()
        for (path, _, _), (_, _, self_s, _, _) in stats.stats.items():  # type: ignore[attr-defined]
            by_package[next((p for p in PACKAGES if p in path), "other")] += self_s
        lines = ["the control plane's time by package (idle waiting is in other):"]
        for package, self_s in by_package.most_common():
            lines.append(f"  {package:20} {self_s:6.2f} s  {self_s / by_package.total():4.0%}")
        print("\n".join(lines), file=sys.stderr)
        stats.sort_stats("tottime").print_stats(PROFILE_LINES)
        return {}

    async def _submit(self, name: str, at: float, due_at: dict[str, float]) -> None:
        chain: Group = [(), *((n,) for n in range(LOAD_CHAIN - 1))]
        due_at[await self._bench.submit(_document(name, [chain]))] = at

    async def _watch(self, count: int) -> dict[str, float]:
        """Returns when each run ended and became durable, by uid."""
        views, ended = self._bench.services.views, dict[str, float]()
        async for uid in self._bench.services.changes.all():
            if views.has_ended(uid) and uid not in ended:
                ended[uid] = time.monotonic()
                if len(ended) == count:
                    break
        return ended


def _document(name: str, groups: Sequence[Group]) -> dict[str, object]:
    """Returns a workflow of no-ops; each parameter has its name, so that no action is a hit."""
    steps = []
    for number, group in enumerate(groups):
        for n, before in enumerate(group):
            step: dict[str, object] = {
                "name": f"s{number}-{n}",
                "uses": "test.noop",
                "with": {"value": f"{name}/{number}/{n}"},
            }
            if before:
                step["inputs"] = {f"before{b}": f"s{number}-{b}.metrics" for b in before}
            steps.append(step)
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": name},
        "spec": {"steps": steps},
    }


async def main(store: str, home: Path) -> None:
    """Serves orders until standard input ends."""
    bench = Bench(home, store=store)
    await bench.start()
    try:
        fabric = Fabric(bench)
        await fabric.graph("flat", 500)
        print(json.dumps({}), flush=True)
        does = {"graph": fabric.graph, "load": fabric.load, "profile": fabric.profile}
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = json.loads(line)
            do = does[order.pop("do")]
            print(json.dumps(await do(**order)), flush=True)
    finally:
        await bench.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
