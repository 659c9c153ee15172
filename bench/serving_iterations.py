"""Measures iteration batching: how many requests of different step counts are in time.

One component with a kernel of NumPy runs steps of a batch; a request takes 4 to 64 of them, most
of them few. It is served in three ways through router, hub and sandboxed host, with the same
kernel and the same queues:

* *iterates*: the component has ``start``, ``step`` and ``finish``, so requests join and leave the
  batch at each step;
* *whole requests*: ``compute`` takes a batch for as many steps as its longest member has;
* *whole requests that leave*: as above, but the steps go on with those that are not finished,
  though no reply leaves before the last one.

Requests come at random (Poisson) at several rates, whether or not earlier ones have ended. Goodput
is the most replies a second within the latency target, over these rates. Run it with ``make
bench-serving-iterations`` on an idle machine.
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from pairs import interval, median_ratio
from results import SERVING_PAGE, Result, Table
from serving_chain_fabric import SERVICE, TOKEN, service_of, started

CODE = """
import numpy as np

LAYERS, WIDTH, ROWS = 700, 64, 2
layers = np.random.default_rng(0).normal(size=(LAYERS, WIDTH, WIDTH)) / WIDTH**0.5
layers = layers.astype(np.float32)

def begin(call):
    noise = np.random.default_rng(call["seed"]).normal(size=(ROWS, WIDTH))
    return {"x": noise.astype(np.float32), "left": call["steps"], "taken": 0}

def advance(states):
    x = np.concatenate([state["x"] for state in states])
    for layer in layers:
        x = x @ layer
    x /= np.abs(x).max() + 1e-6
    for number, state in enumerate(states):
        state["x"] = x[ROWS * number : ROWS * (number + 1)]
        state["left"] -= 1
        state["taken"] += 1

class Iterating:
    def start(self, call):
        return begin(call)

    def step(self, states):
        advance(states)
        return [not state["left"] for state in states]

    def remaining(self, state):
        return state["left"]

    def finish(self, state):
        return {"taken": state["taken"]}

def whole(batch):
    states = [begin(call) for call in batch]
    for _ in range(max(state["left"] for state in states)):
        advance(states)
    return [{"taken": call["steps"]} for call in batch]

def leaving(batch):
    states = [begin(call) for call in batch]
    while active := [state for state in states if state["left"]]:
        advance(active)
    return [{"taken": state["taken"]} for state in states]
"""
WAYS = {
    "iterates": "Iterating",
    "whole requests": "whole",
    "whole requests that leave": "leaving",
}
LEAST, MOST = 4, 64
BATCH_MAX = 20
LATENCY_STEPS = 150
"""The latency target in steps of a request alone: the longest request takes 64 of them."""
LOADS = (0.15, 0.3, 0.45, 0.6, 0.75, 0.9)
"""The rates, as parts of what full batches that never wait would serve."""
_READY_S = 60.0
_OK = 200


class Kernel(NamedTuple):
    """Seconds of a step alone, and of one of a full batch."""

    alone_s: float
    full_s: float

    @property
    def most_per_s(self) -> float:
        """Requests a second of full batches that requests join at each step."""
        return BATCH_MAX / (mean_steps() * self.full_s)

    @property
    def latency_s(self) -> float:
        """The latency target."""
        return LATENCY_STEPS * self.alone_s


def draw_steps(rng: random.Random) -> int:
    """Returns the steps of a request."""
    return round(LEAST * (MOST / LEAST) ** rng.random())


def mean_steps() -> float:
    """Returns the mean of :func:`draw_steps`."""
    rng = random.Random(0)
    return statistics.mean(draw_steps(rng) for _ in range(10_000))


def measured_kernel() -> Kernel:
    """Measures steps in this process."""
    module: dict[str, Any] = {}
    exec(CODE, module)
    found = []
    for size in (1, BATCH_MAX):
        states = [module["begin"]({"seed": n, "steps": 1}) for n in range(size)]
        took = []
        for _ in range(40):
            began_s = time.perf_counter()
            module["advance"](states)
            took.append(time.perf_counter() - began_s)
        found.append(min(took))  # others use the machine, too
    return Kernel(*found)


def spec(function: str, latency_s: float) -> dict[str, Any]:
    """Returns the service."""
    python = {"code": CODE, "function": function}
    return {
        "components": {"model": {"python": python, "batch": {"max": BATCH_MAX}}},
        "stages": [
            {
                "name": "image",
                "component": "model",
                "inputs": {"seed": "request.seed", "steps": "request.steps"},
            }
        ],
        "reply": {"image": "image"},
        "slo": {"latency": f"{round(latency_s * 1000)}ms", "onLate": "refuse"},
    }


class Service:
    """A running service."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._url = f"http://127.0.0.1:{port}/v1/services/{SERVICE}:invoke"
        self._headers = {"Authorization": f"Bearer {TOKEN}"}

    async def ask(self, seed: int, steps: int) -> float:
        """Returns the seconds until the reply of a request; infinite where it has none."""
        began_s, body = time.perf_counter(), {"seed": seed, "steps": steps}
        async with self._session.post(self._url, json=body, headers=self._headers) as response:
            if response.status != _OK:
                return float("inf")
            reply = await response.json()
        if reply["image"]["taken"] != steps:
            raise RuntimeError(f"a request of {steps} steps took {reply['image']['taken']}")
        return time.perf_counter() - began_s

    async def until_ready(self) -> None:
        """Waits until it answers."""
        async with asyncio.timeout(_READY_S):
            while await self.ask(0, 1) == float("inf"):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.05)

    async def load(self, rate: float, for_s: float, seed: int) -> list[float]:
        """Sends requests at a rate for some seconds; returns the latency of each."""
        rng, asking = random.Random(seed), []
        next_s = time.perf_counter()
        end_s = next_s + for_s
        while (next_s := next_s + rng.expovariate(rate)) < end_s:
            await asyncio.sleep(max(0.0, next_s - time.perf_counter()))
            asking.append(asyncio.ensure_future(self.ask(len(asking), draw_steps(rng))))
        return list(await asyncio.gather(*asking))


Found = dict[tuple[str, float], list[float]]
"""Replies in time a second, by way and load; one of each round."""


async def measure(kernel: Kernel, rounds: int, for_s: float) -> Found:
    """Returns what each way serves; the ways take turns."""
    found: Found = defaultdict(list)
    for number in range(rounds):
        for way, function in WAYS.items():
            declared = service_of(spec(function, kernel.latency_s))
            with tempfile.TemporaryDirectory(prefix="fm-steps-") as folder:
                async with (
                    started(Path(folder), declared, [("model",)], kernel.latency_s) as chain,
                    aiohttp.ClientSession() as session,
                ):
                    service = Service(session, chain.port)
                    await service.until_ready()
                    await service.load(LOADS[1] * kernel.most_per_s, for_s, 99)  # it measures
                    for load in LOADS:
                        took = await service.load(load * kernel.most_per_s, for_s, number)
                        in_time = sum(s <= kernel.latency_s for s in took)
                        found[way, load].append(in_time / for_s)
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return found


def goodput(found: Found, way: str) -> list[float]:
    """Returns the most replies in time a second of each round."""
    return [max(values) for values in zip(*(found[way, load] for load in LOADS), strict=True)]


def tables(found: Found, kernel: Kernel) -> Sequence[Table]:
    """Returns the replies in time by load, and the goodput."""
    rows = [
        [
            f"{load * kernel.most_per_s:.1f}",
            *(f"{statistics.median(found[way, load]):.1f}" for way in WAYS),
        ]
        for load in LOADS
    ]
    ours, best = goodput(found, "iterates"), {way: goodput(found, way) for way in WAYS}
    ratios = [
        [way, f"{statistics.median(most):.1f}", interval(median_ratio(ours, most), ".2f")]
        for way, most in best.items()
    ]
    step = f"{kernel.alone_s * 1e3:.1f} ms alone, {kernel.full_s * 1e3:.1f} ms with {BATCH_MAX}"
    notes = [
        f"A step takes {step}. A request has {LEAST} to {MOST} steps, {mean_steps():.1f} in the"
        f" mean; a reply is in time within {kernel.latency_s * 1e3:.0f} ms."
    ]
    return [
        Table("Replies in time a second, medians", ["requests/s", *WAYS], rows, notes),
        Table("Goodput: the most of them", ["way", "in time/s", "iterates beside it"], ratios),
    ]


def main() -> None:
    """Prints the result and writes it to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="starts of each way")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load")
    parser.add_argument("--draft", action="store_true", help="only print; save nothing")
    given = parser.parse_args()
    result = Result("serving-iterations", page=SERVING_PAGE)
    kernel = measured_kernel()
    found = asyncio.run(measure(kernel, given.rounds, given.seconds))
    result.tables += tables(found, kernel)
    result.figures = {f"{way}, {load}": values for (way, load), values in found.items()}
    result.figures["kernel"] = kernel._asdict()
    result.save(keep=not given.draft)


if __name__ == "__main__":
    main()
