"""Measures growth with work and fleet: scheduling cycle, memory, time to the first dispatch.

*Cycle*: a scheduling decision on 100 to 100,000 ready actions and 1 to 1,000 workers, in the steady
state of ``tick.py``. *Actions*: a workflow of independent no-ops is submitted to a control plane
with a memory store, in a new process each time; its workers are only registered, without processes.
The times of acceptance and of the first message to a worker are measured; memory is the growth of
the process until all actions were looked up and are ready or sent.

Run it with ``make bench-growth``.
"""

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fabric import MEMORY, Bench
from results import Result, Table, spread
from tick import case, measure

from flowmesh_control.loop.gc_tuning import tune_gc
from flowmesh_core.machine.events import WorkerConnected
from flowmesh_core.protocol.messages import Assignment, EngineVersion, Hello, WorkerShape

TICK_READY = (100, 1_000, 10_000, 100_000)
TICK_WORKERS = (1, 10, 100, 1_000)
FLOWS = ((100, 1), (1_000, 1), (10_000, 1), (10_000, 100), (10_000, 1_000), (100_000, 1))
ONCE = 100_000
"""A workflow of this many steps is submitted once: it takes minutes, most of them compiling."""
GOAL = (10_000, 100, 20.0)


def ticks(largest: int, repeats: int, result: Result) -> None:
    """Measures medians of CPU time by size."""
    tune_gc()
    rows, figures = [], {}
    for ready in (n for n in TICK_READY if n <= largest):
        cells = [f"{ready:,}"]
        for workers in TICK_WORKERS:
            median, worst, _ = measure(*case(ready, workers, cold=False), repeats)
            cells.append(f"{median:.1f} ({worst:.1f})")
            figures[f"{ready} x {workers}"] = median
            print(f"tick {ready} x {workers}: {median:.1f} ms", file=sys.stderr, flush=True)
        rows.append(cells)
    title = f"A tick in ms of processor time: median of {repeats} (worst), steady state"
    columns = ["ready actions", *(f"{w:,} worker{'s' * (w > 1)}" for w in TICK_WORKERS)]
    goal = f"The goal is {GOAL[2]:g} ms at {GOAL[0]:,} ready and {GOAL[1]} workers."
    result.tables.append(Table(title, columns, rows, [goal]))
    result.figures["tick_ms"] = figures


def flows(largest: int, rounds: int, result: Result) -> None:
    """Runs one workflow of each size, ``rounds`` times in turns."""
    sizes = [size for size in FLOWS if size[0] <= largest]
    found: dict[tuple[int, int], list[dict[str, float]]] = {size: [] for size in sizes}
    for number in range(rounds):
        for size, passes in found.items():
            if number and size[0] >= ONCE:
                continue
            passes.append(_in_new_process(*size))
            print(f"{size}: {passes[-1]}", file=sys.stderr, flush=True)
    rows = []
    for (actions, workers), passes in found.items():
        cells = [f"{actions:,}", f"{workers:,}"]
        for name, form in (("accepted_s", ".2f"), ("first_s", ".2f"), ("kib", ".1f")):
            cells.append(spread([p[name] for p in passes], form))
        rows.append(cells)
    columns = ["actions", "workers", "accepted, s", "first dispatch, s", "KiB an action"]
    title = f"A workflow of no-ops, {rounds} rounds in turns: median (least to greatest)"
    note = "The first dispatch is clocked from handing the workflow in, like the acceptance."
    once = [f"{ONCE:,} actions were handed in once."] if largest >= ONCE else []
    result.tables.append(Table(title, columns, rows, [note, *once]))
    result.figures["flows"] = {f"{a} x {w}": passes for (a, w), passes in found.items()}


def _in_new_process(actions: int, workers: int) -> dict[str, float]:
    """Runs one pass in a new process, so that its memory is this workflow's."""
    command = [sys.executable, __file__, "--one", str(actions), str(workers)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


async def one(actions: int, workers: int) -> dict[str, float]:
    """Submits one workflow and waits until all its actions are ready or sent."""
    with tempfile.TemporaryDirectory(prefix="flowmesh-bench-") as root:
        bench = Bench(Path(root), workers=0, store=MEMORY)
        await bench.start()
        loop, state = bench.loop, bench.machine.state
        for n in range(workers):
            await loop.ask(WorkerConnected(_hello(n)))
        first_s = [0.0]
        plain = bench.services.gateway.assign

        def assign(
            worker: str, assignment: Assignment, generation: int, scopes: tuple[str, ...]
        ) -> None:
            first_s[0] = first_s[0] or time.monotonic()
            plain(worker, assignment, generation, scopes)

        bench.services.gateway.assign = assign  # type: ignore[method-assign]
        document = _document(actions)
        gc.collect()
        before, started = _resident_kib(), time.monotonic()
        await bench.submit(document)
        found = {"accepted_s": time.monotonic() - started}
        while len(state.ready) + state.attempts_made < actions or not first_s[0]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        gc.collect()
        found["kib"] = (_resident_kib() - before) / actions
        found["first_s"] = first_s[0] - started
        await bench.stop()
        return found


def _hello(n: int) -> Hello:
    shape = WorkerShape(
        name=f"w{n:04d}",
        pool="local",
        device_class="cpu",
        device_memory_mib=64_000,
        host_memory_mib=64_000,
        cpus=16,
        price_nanousd_per_hour=100_000_000,
        engines={"test.noop": EngineVersion(1, 1)},
    )
    return Hello(1, epoch=0, incarnation=str(n), started_s=time.time(), shape=shape)


def _document(actions: int) -> dict[str, object]:
    steps = [{"name": f"s{n}", "uses": "test.noop", "with": {"value": n}} for n in range(actions)]
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": "growth"},
        "spec": {"steps": steps},
    }


def _resident_kib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("--largest", type=int, default=100_000, help="largest number of actions")
    given.add_argument("--repeats", type=int, default=7, help="cycles per size")
    given.add_argument("--rounds", type=int, default=5, help="workflows per size")
    given.add_argument("--draft", action="store_true", help="only print; save nothing")
    given.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)
    return given


def main(arguments: argparse.Namespace) -> None:
    """Runs everything, or one workflow where the parent process asks for it."""
    if arguments.one:
        print(json.dumps(asyncio.run(one(*arguments.one))))
        return
    result = Result("growth")
    ticks(arguments.largest, arguments.repeats, result)
    flows(arguments.largest, arguments.rounds, result)
    result.save(keep=not arguments.draft)


if __name__ == "__main__":
    main(parser().parse_args())
