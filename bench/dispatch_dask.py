"""Dask's side of ``bench/dispatch.py``; runs in Dask's environment, without FlowMesh's packages.

Orders and answers are those of ``dispatch_ray.py``. It is configured as Dask's documentation
advises for many small tasks: worker processes with one thread, a whole graph in one message, no
dashboard, and no memory limits that pause or spill.
"""

import json
import sys
import time
from itertools import pairwise
from typing import Any

import dask
import distributed
from distributed import Client, LocalCluster
from graphs import LOAD_CHAIN, arrivals, ends, graph

CONFIG = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.profile.enabled": False,
    "distributed.scheduler.validate": False,
    "distributed.diagnostics.computations.max-history": 0,
    "distributed.admin.large-graph-warning-threshold": "1GB",
    # Fusing tasks would reduce their number, and the dispatch of each is measured.
    "optimization.fuse.active": False,
}


def noop(*_: object) -> None:
    """Does nothing; its arguments are its dependencies."""


class Dask:
    """A client of a local cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._rounds = 0

    def graph(self, shape: str, count: int) -> dict[str, Any]:
        """Runs a graph, submitted in one message."""
        self._rounds += 1
        started = time.monotonic()
        tasks: dict[str, Any] = {}
        wanted: list[str] = []
        for number, group in enumerate(graph(shape, count)):
            names = [f"t{self._rounds}-{number}-{n}" for n in range(len(group))]
            for name, before in zip(names, group, strict=True):
                tasks[name] = (noop, *(names[b] for b in before))
            wanted += [names[n] for n in ends(group)]
        self._client.get(tasks, wanted, sync=True)
        return {"seconds": time.monotonic() - started}

    def load(self, rate: float, seconds: float, seed: int) -> dict[str, Any]:
        """Runs chains at random times; returns the seconds from each due time to the end."""
        self._rounds += 1
        done: list[float] = []
        futures = []
        started = time.monotonic()
        for number, due in enumerate(arrivals(rate, seconds, seed)):
            at = started + due
            time.sleep(max(0.0, at - time.monotonic()))
            names = [f"l{self._rounds}-{number}-{n}" for n in range(LOAD_CHAIN)]
            tasks: dict[str, Any] = {names[0]: (noop,)}
            tasks |= {b: (noop, a) for a, b in pairwise(names)}
            future = self._client.get(tasks, names[-1], sync=False)
            future.add_done_callback(lambda _, at=at: done.append(time.monotonic() - at))
            futures.append(future)
        for future in futures:
            future.result()
        while len(done) < len(futures):
            time.sleep(0.001)
        return {"latencies_s": done}


def main() -> None:
    """Serves orders until standard input ends."""
    with (
        dask.config.set(CONFIG),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            memory_limit=0,
            silence_logs=50,
        ) as cluster,
        Client(cluster) as client,
    ):
        peer = Dask(client)
        peer.graph("flat", 1000)
        print(json.dumps({"version": distributed.__version__}), flush=True)
        for line in sys.stdin:
            order = json.loads(line)
            do = {"graph": peer.graph, "load": peer.load}[order.pop("do")]
            print(json.dumps(do(**order)), flush=True)


if __name__ == "__main__":
    main()
