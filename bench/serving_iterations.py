"""Measures iteration batching: how many requests of different step counts are in time.

One component with a kernel of NumPy runs steps of a batch; a request takes 4 to 64 of them, most
of them few. It is served in three ways, with the same kernel and the same queues:

* *iterates*: the component has ``start``, ``step`` and ``finish``, so requests join and leave the
  batch at each step;
* *whole requests*: ``compute`` takes a batch for as many steps as its longest member has;
* *whole requests that leave*: as above, but the steps go on with those that are not finished,
  though no reply leaves before the last one.

Requests come at random (Poisson) at several rates, whether or not earlier ones have ended. Goodput
is the most replies a second within the latency target, over these rates.

The queues of the component host run the real kernel in this process, and their clock moves by its
processor time, so that other work on the machine does not count; a message to the sandbox and back
counts 0.1 ms. With ``--processes`` requests go through router, hub and sandboxed host by the wall
clock, which says something on an idle machine only; that is printed and not saved. Run it with
``make bench-serving-iterations``.
"""

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy is imported
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import aiohttp
import msgspec
from pairs import interval, median_ratio
from results import SERVING_PAGE, Result, Table
from serving_chain_fabric import SERVICE, TOKEN, service_of, started
from tests.virtual_time import VirtualTime

from flowmesh_core.protocol.serving import ComponentCall
from flowmesh_worker.engines.code.chain_results import ChainResult
from flowmesh_worker.engines.code.component_batches import (
    REFUSE,
    ComponentBatches,
)
from flowmesh_worker.engines.code.component_code import ComponentCode
from flowmesh_worker.engines.code.component_frames import (
    BatchCall,
    CallResult,
    LoadedCode,
    StepMember,
)
from flowmesh_worker.engines.code.iterating_code import StepResults
from flowmesh_worker.ipc.passed_values import StageBytes
from flowmesh_worker.ipc.spare_files import SpareFiles

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
MESSAGE_S = 1e-4
"""What a message to the sandbox and back takes; 0.07 ms were measured."""
_READY_S = 60.0
_OK = 200
_TIMEOUT_MS = 60_000
_LATE = float("inf")

Ran = TypeVar("Ran")


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
        took: list[float] = []
        for _ in range(100):
            began_s = time.thread_time()
            module["advance"](states)
            took.append(time.thread_time() - began_s)
        found.append(statistics.median(took))
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


class Service(Protocol):
    """Answers requests."""

    async def ask(self, seed: int, steps: int) -> float:
        """Returns the seconds until the reply of a request; infinite where it has none."""
        ...


async def load(service: Service, rate: float, for_s: float, seed: int) -> list[float]:
    """Sends requests at a rate for some seconds; returns the latency of each."""
    rng, loop = random.Random(seed), asyncio.get_running_loop()
    asking: list[asyncio.Task[float]] = []
    next_s = loop.time()
    end_s = next_s + for_s
    while (next_s := next_s + rng.expovariate(rate)) < end_s:
        await asyncio.sleep(max(0.0, next_s - loop.time()))
        asking.append(loop.create_task(service.ask(len(asking), draw_steps(rng))))
    return list(await asyncio.gather(*asking))


class ProcessorTime:
    """Runs code in this process; the clock of the virtual time moves by its processor time."""

    def __init__(self, components: Sequence[LoadedCode]) -> None:
        self._code = ComponentCode(components, SpareFiles())
        self.iterating = self._code.iterating

    async def run(
        self,
        component: str,
        calls: Sequence[BatchCall],
        within_s: float,
        passed: Sequence[Mapping[str, StageBytes]] = (),
    ) -> list[CallResult]:
        """See ``CodeRunner``."""
        del within_s, passed
        return await self._timed(lambda: self._code.run(component, calls))

    async def step(
        self,
        component: str,
        members: Sequence[StepMember],
        within_s: float,
        passed: Sequence[Mapping[str, StageBytes]] = (),
    ) -> StepResults:
        """See ``CodeRunner``."""
        del within_s, passed
        return await self._timed(lambda: self._code.step(component, members))

    async def _timed(self, run: Callable[[], Ran]) -> Ran:
        began_s = time.thread_time()
        results = run()
        await asyncio.sleep(time.thread_time() - began_s + MESSAGE_S)
        return results

    def forget(self, keys: tuple[str, ...]) -> None:
        """See ``CodeRunner``."""
        self._code.forget(keys)

    async def close(self) -> None:
        """See ``CodeRunner``."""


class HostService:
    """A component host in virtual time."""

    def __init__(self, function: str, latency_s: float) -> None:
        components = (LoadedCode("model", CODE, function, BATCH_MAX),)
        runner = ProcessorTime(components)
        self._slo_ms = round(latency_s * 1000)
        self.host = ComponentBatches(components, runner, REFUSE, lambda: None)
        self._asked = 0

    async def ask(self, seed: int, steps: int) -> float:
        """See ``Service``."""
        loop = asyncio.get_running_loop()
        self._asked += 1
        name, body = f"r{self._asked}", msgspec.json.encode({"seed": seed, "steps": steps})
        call = ComponentCall(name, "model", body, {}, "", True, _TIMEOUT_MS, self._slo_ms)
        began_s = loop.time()
        (found,) = await asyncio.gather(self.host.call(call), return_exceptions=True)
        if not isinstance(found, ChainResult):
            return _LATE
        check(msgspec.json.decode(found.result.body), steps)
        return loop.time() - began_s


class RoutedService:
    """The service behind a router, by the wall clock."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._url = f"http://127.0.0.1:{port}/v1/services/{SERVICE}:invoke"
        self._headers = {"Authorization": f"Bearer {TOKEN}"}

    async def ask(self, seed: int, steps: int) -> float:
        """See ``Service``."""
        began_s, body = time.perf_counter(), {"seed": seed, "steps": steps}
        async with self._session.post(self._url, json=body, headers=self._headers) as response:
            if response.status != _OK:
                return _LATE
            check((await response.json())["image"], steps)
        return time.perf_counter() - began_s

    async def until_ready(self) -> None:
        """Waits until it answers."""
        async with asyncio.timeout(_READY_S):
            while await self.ask(0, 1) == _LATE:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.05)


def check(reply: dict[str, int], steps: int) -> None:
    """Checks a reply.

    Raises:
        RuntimeError: the request has taken another number of steps.
    """
    if reply["taken"] != steps:
        raise RuntimeError(f"a request of {steps} steps took {reply['taken']}")


@contextlib.asynccontextmanager
async def hosted(function: str, latency_s: float) -> AsyncIterator[Service]:
    """Yields a service in virtual time."""
    service = HostService(function, latency_s)
    yield service
    await service.host.close()


@contextlib.asynccontextmanager
async def routed(function: str, latency_s: float) -> AsyncIterator[Service]:
    """Yields a service of processes."""
    declared = service_of(spec(function, latency_s))
    with tempfile.TemporaryDirectory(prefix="fm-steps-") as folder:
        async with (
            started(Path(folder), declared, [("model",)], latency_s) as chain,
            aiohttp.ClientSession() as session,
        ):
            service = RoutedService(session, chain.port)
            await service.until_ready()
            yield service


Serve = Callable[[str, float], contextlib.AbstractAsyncContextManager[Service]]
Found = dict[tuple[str, float], list[float]]
"""Replies in time a second, by way and load; one of each round."""


async def measure(serve: Serve, kernel: Kernel, rounds: int, for_s: float) -> Found:
    """Returns what each way serves; the ways take turns."""
    found: Found = defaultdict(list)
    for number in range(rounds):
        for way, function in WAYS.items():
            async with serve(function, kernel.latency_s) as service:
                await load(service, LOADS[1] * kernel.most_per_s, for_s, 99)  # it is measured
                for part in LOADS:
                    took = await load(service, part * kernel.most_per_s, for_s, number)
                    in_time = sum(s <= kernel.latency_s for s in took)
                    found[way, part].append(in_time / for_s)
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
    parser.add_argument("--seconds", type=float, default=3.0, help="of each load")
    parser.add_argument("--draft", action="store_true", help="only print; save nothing")
    parser.add_argument(
        "--processes", action="store_true", help="through all processes, by the wall clock"
    )
    given = parser.parse_args()
    result = Result("serving-iterations", page=SERVING_PAGE)
    kernel = measured_kernel()
    measuring = measure(routed if given.processes else hosted, kernel, given.rounds, given.seconds)
    with asyncio.Runner(loop_factory=None if given.processes else VirtualTime) as runner:
        found = runner.run(measuring)
    result.tables += tables(found, kernel)
    result.figures = {f"{way}, {load}": values for (way, load), values in found.items()}
    result.figures["kernel"] = kernel._asdict()
    result.save(keep=not (given.draft or given.processes))


if __name__ == "__main__":
    main()
