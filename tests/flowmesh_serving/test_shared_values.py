"""Arrays between component hosts: equal on every way, and nothing of them is left afterwards."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_serving.stack import until
from tests.flowmesh_serving.stage_stack import python, stage_stack, together, without_peers
from tests.flowmesh_serving.values_in_memory import values_below

from flowmesh_worker.serving import stage_requests

pytestmark = pytest.mark.slow

CODE = """
import numpy as np

def make(batch):
    return [{"rows": np.arange(call["n"], dtype="<f4")[::-1], "n": call["n"]} for call in batch]

def total(batch):
    return [{"sum": float(call["rows"].sum()), "first": float(call["rows"][0]),
             "fixed": not call["rows"].flags.writeable} for call in batch]

def text(batch):
    return ["x" * call["n"] for call in batch]

def length(batch):
    return [len(call["text"]) for call in batch]
"""


def chain(first: str, second: str, name: str, part: str, **more: Any) -> dict[str, Any]:
    """Returns two components, each in a host of its own."""
    return {
        "components": {
            "one": python(CODE, first, ownHost=True, **more),
            "two": python(CODE, second, ownHost=True, **more),
        },
        "stages": [
            {"name": "made", "component": "one", "inputs": {"n": "request.n"}},
            {"name": "used", "component": "two", "inputs": {name: f"made{part}"}},
        ],
        "reply": {"out": "used"},
    }


def open_values() -> list[str]:
    """Returns the values in memory that this process, which has the hubs, has open."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # it was that of the list itself
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [target for target in found if "memfd:value" in target]


@pytest.mark.parametrize("more", [{}, {"trusted": True}], ids=["sandboxed", "trusted"])
async def test_arrays_pass_between_hosts_of_one_worker_in_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    monkeypatch.setenv("FLOWMESH_TRUSTED_CODE", "1")
    spec = chain("make", "total", "rows", ".rows", resources={"memory": "256Mi"}, **more)
    async with stage_stack(tmp_path, spec, {"w1": ["one", "two"]}) as stack:
        assert not open_values()
        for n in (1, 1000, 1 << 22):  # the last one has 16 MiB
            status, body = await stack.ask({"n": n})
            wanted = {"sum": float(sum(range(n))), "first": n - 1, "fixed": True}
            assert (status, body["out"]["first"], body["out"]["fixed"]) == (200, n - 1, True)
            assert body["out"]["sum"] == pytest.approx(wanted["sum"], rel=1e-4)
        await together(*(stack.ask({"n": 50_000}) for _ in range(8)))
        hub = stack.hubs["w1"]
        await until(lambda: not len(hub._stages))
        assert hub._stages._value_bytes == 0
        await until(lambda: not open_values())
        if not more:  # trusted hosts keep files and mappings, as the next test shows
            hosts = {host.pid for host in stack.hosts.values()}
            await until(lambda: not any(map(values_below, hosts)))
        assert await stack.until_passed("shared", (16 << 20) + 8 * 200_000)


KEEPING = """
import os
import numpy as np

kept = []

def make(batch):
    return [np.full(call["n"], call["fill"], "u1") for call in batch]

def read(batch):
    for call in batch:
        if call["n"] == 1:
            kept.append(call["rows"][::7])
    return [{"sum": int(call["rows"].sum()), "kept": [int(rows.max()) for rows in kept]}
            for call in batch]
"""


def files_of(pid: int) -> set[int]:
    """Returns the inodes of values that a process has open."""
    found = set()
    for name in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if "memfd:value" in os.readlink(name):
                found.add(name.stat().st_ino)
    return found


@pytest.mark.parametrize("workers", [{"w1": ["one", "two"]}, {"w1": ["one"], "w2": ["two"]}])
async def test_trusted_hosts_use_their_files_again_but_not_those_whose_array_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: dict[str, list[str]]
) -> None:
    monkeypatch.setenv("FLOWMESH_TRUSTED_CODE", "1")
    spec = chain("make", "read", "rows", "", trusted=True)
    for component in spec["components"].values():
        component["python"]["code"] = KEEPING
    spec["stages"][0]["inputs"]["fill"] = "request.fill"
    spec["stages"][1]["inputs"]["n"] = "request.keep"
    async with stage_stack(tmp_path, spec, workers) as stack:
        n, kept = 1 << 20, [250, 251]
        for fill in kept:
            assert (await stack.ask({"n": n, "fill": fill, "keep": 1}))[0] == 200
        for fill in range(100):
            _, body = await stack.ask({"n": n, "fill": fill, "keep": 0})
            assert body["out"] == {"sum": fill * n, "kept": kept}
        (maker,) = (host.pid for key, host in stack.hosts.items() if key[1] == "one")
        assert len(files_of(maker)) <= 6, "those that are kept, and the few in turn"
        await until(lambda: not open_values())


async def test_large_json_passes_in_shared_memory_and_small_values_inline(tmp_path: Path) -> None:
    spec = chain("text", "length", "text", "")
    async with stage_stack(tmp_path, spec, {"w1": ["one", "two"]}) as stack:
        assert await stack.ask({"n": 10}) == (200, {"out": 10})
        assert await stack.until_passed("inline", 20)
        assert await stack.until_passed("shared", 0) == 0
        assert await stack.ask({"n": 10 << 20}) == (200, {"out": 10 << 20})
        assert await stack.until_passed("shared") == (10 << 20) + 2


async def test_arrays_pass_between_workers_through_the_router_up_to_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_peers(monkeypatch)
    spec = chain("make", "total", "rows", ".rows")
    async with stage_stack(tmp_path, spec, {"w1": ["one"], "w2": ["two"]}) as stack:
        status, body = await stack.ask({"n": 100_000})
        assert (status, body["out"]["first"]) == (200, 99_999)
        status, body = await stack.ask({"n": 1 << 22})
        assert (status, body["error"]["code"]) == (500, "value_too_large")


async def test_a_hub_refuses_values_beyond_its_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_requests, "VALUES_BYTES_MAX", 1 << 20)
    spec = chain("make", "total", "rows", ".rows")
    async with stage_stack(tmp_path, spec, {"w1": ["one", "two"]}) as stack:
        status, body = await stack.ask({"n": 1 << 19})
        assert (status, body["error"]["code"]) == (429, "overloaded")
        assert (await stack.ask({"n": 1000}))[0] == 200
        await until(lambda: stack.hubs["w1"]._stages._value_bytes == 0)


async def test_nothing_is_left_of_requests_that_are_cancelled_or_lose_their_host(
    tmp_path: Path,
) -> None:
    spec = chain("make", "total", "rows", ".rows", resources={"memory": "256Mi"})
    workers = {"w1": ["one"], "w2": ["two"]}
    async with stage_stack(tmp_path, spec, workers, max_in_flight=256) as stack:
        hubs = [hub._stages for hub in stack.hubs.values()]
        for _ in range(3):
            asking = [asyncio.create_task(stack.ask({"n": 20_000 + i})) for i in range(40)]
            await until(lambda: any(hub._value_bytes > 80_000 for hub in hubs))
            for task in asking[::2]:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            await until(lambda: not any(map(len, hubs)))
        asking = [asyncio.create_task(stack.ask({"n": 20_000 + i})) for i in range(40)]
        await until(lambda: any(hub._value_bytes > 80_000 for hub in hubs))
        os.kill(stack.hosts["w2", "two"].pid, signal.SIGKILL)
        await asyncio.gather(*asking)
        await until(lambda: not any(hub._value_bytes or hub._early.size for hub in hubs))
        await until(lambda: not open_values())


async def test_an_array_in_a_reply_is_an_error_of_its_component(tmp_path: Path) -> None:
    spec = chain("make", "make", "n", ".n")
    async with stage_stack(tmp_path, spec, {"w1": ["one", "two"]}) as stack:
        status, body = await stack.ask({"n": 3})
        assert (status, "not JSON" in body["error"]["message"]) == (500, True)
