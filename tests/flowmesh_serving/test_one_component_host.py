"""Ten Python components in one host: one batch at a time, and sooner than in a process each.

Latencies are by the processor time of all processes of the contestant, which are on one core and
keep it busy, so that other processes of the machine do not count.
"""

import asyncio
import os
import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_serving.stage_stack import StageStack, python, stage_stack, together

NAMES = tuple("abcdefghij")
ROUNDS, CLIENTS, REQUESTS = 3, 10, 8
CODE = """
import time

def work(batch):
    began, until = time.monotonic(), time.thread_time() + 0.002
    while time.thread_time() < until:
        pass
    trace = [[began, time.monotonic()]]
    return [{"trace": call["before"]["trace"] + trace} for call in batch]
"""


def chain(**more: Any) -> dict[str, Any]:
    """Returns ten stages, one after the other, each of a component of its own."""
    stages = [
        {"name": f"s{n}", "component": name, "inputs": {"before": f"s{n - 1}" if n else "request"}}
        for n, name in enumerate(NAMES)
    ]
    return {
        "components": {name: python(CODE, "work", **more) for name in NAMES},
        "stages": stages,
        "reply": {"trace": "s9.trace"},
    }


async def traces(stack: StageStack) -> list[list[list[float]]]:
    """Returns when the batches ran that concurrent requests went through."""
    replies = await together(*(stack.ask({"trace": []}) for _ in range(CLIENTS)))
    assert [status for status, _ in replies] == [200] * CLIENTS
    return [body["trace"] for _, body in replies]


def overlaps(found: list[list[list[float]]]) -> int:
    """Returns how many batches began before the one before them had ended."""
    batches = sorted({(began, ended) for trace in found for began, ended in trace})
    return sum(second < first for (_, first), (second, _) in pairwise(batches))


def descendants(pid: int) -> list[int]:
    """Returns the processes that a process started, and those that they started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [one for child in map(int, children) for one in (child, *descendants(child))]


def processor_s(pids: list[int]) -> float:
    """Returns the processor time of this process and of others."""
    files = (file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return time.process_time() + sum(int(file.read_text().split()[0]) for file in files) / 1e9


async def mean_latency_s(folder: Path, **more: Any) -> float:
    """Returns the mean latency of clients that ask again and again."""
    async with stage_stack(folder, chain(**more), {"w1": list(NAMES)}) as stack:
        await traces(stack)  # measures the batches
        taken: list[float] = []
        pids = descendants(os.getpid())

        async def client() -> None:
            for _ in range(REQUESTS):
                began_s = processor_s(pids)
                assert (await stack.ask({"trace": []}))[0] == 200
                taken.append(processor_s(pids) - began_s)

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        return statistics.fmean(taken)


@pytest.mark.slow
async def test_at_most_one_batch_of_a_host_runs_at_any_instant(tmp_path: Path) -> None:
    async with stage_stack(tmp_path, chain(), {"w1": list(NAMES)}) as stack:
        found = await traces(stack)
    assert all(len(trace) == len(NAMES) for trace in found)
    assert overlaps(found) == 0


@pytest.mark.nightly
async def test_batches_of_hosts_of_their_own_overlap(tmp_path: Path) -> None:
    async with stage_stack(tmp_path, chain(ownHost=True), {"w1": list(NAMES)}) as stack:
        assert len(stack.hosts) == len(NAMES)
        assert overlaps([trace for _ in range(5) for trace in await traces(stack)]) > 0


@pytest.mark.nightly
async def test_mean_latency_is_at_most_four_fifths_of_that_of_a_process_each(
    tmp_path: Path,
) -> None:
    """All processes are on one core, and the contestants take turns."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        ratios = []
        for n in range(ROUNDS):
            shared_s = await mean_latency_s(tmp_path / f"shared-{n}")
            alone_s = await mean_latency_s(tmp_path / f"alone-{n}", ownHost=True)
            ratios.append(shared_s / alone_s)
            print(f"shared {shared_s:.3f} s, alone {alone_s:.3f} s")  # noqa: T201 - the figure
    finally:
        os.sched_setaffinity(0, before)
    assert statistics.median(ratios) <= 0.8
