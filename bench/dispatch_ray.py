"""Ray's side of ``bench/dispatch.py``; runs in Ray's environment, without FlowMesh's packages.

Each line of standard input is an order in JSON, answered in JSON: ``graph`` runs a graph of no-op
tasks and returns its seconds, ``load`` submits chains at given times and returns when each ended.
"""

import json
import sys
import time
from typing import Any

import ray
from graphs import LOAD_CHAIN, arrivals, ends, graph


@ray.remote
def noop(*_: object) -> None:
    """Does nothing; its arguments are its dependencies."""


def run(shape: str, count: int) -> dict[str, Any]:
    """Runs a graph; its tasks are submitted one by one, as Ray requires."""
    started = time.monotonic()
    wanted = []
    for group in graph(shape, count):
        tasks: list[Any] = []
        for before in group:
            tasks.append(noop.remote(*[tasks[b] for b in before]))
        wanted += [tasks[n] for n in ends(group)]
    ray.get(wanted)
    return {"seconds": time.monotonic() - started}


def load(rate: float, seconds: float, seed: int) -> dict[str, Any]:
    """Runs chains at random times; returns the seconds from each due time to the end."""
    done: list[float] = []
    futures = []
    started = time.monotonic()
    for due in arrivals(rate, seconds, seed):
        at = started + due
        time.sleep(max(0.0, at - time.monotonic()))
        last = noop.remote()
        for _ in range(LOAD_CHAIN - 1):
            last = noop.remote(last)
        future = last.future()
        future.add_done_callback(lambda _, at=at: done.append(time.monotonic() - at))
        futures.append(future)
    for future in futures:
        future.result()
    return {"latencies_s": done}


def main() -> None:
    """Serves orders until standard input ends."""
    ray.init(
        "local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False
    )
    run("flat", 1000)
    print(json.dumps({"version": ray.__version__}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        do = {"graph": run, "load": load}[order.pop("do")]
        print(json.dumps(do(**order)), flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()
