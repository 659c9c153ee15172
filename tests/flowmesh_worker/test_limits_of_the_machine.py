"""Real limits: a control group without memory, a disk without space. They need root."""

import ctypes
import os
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flowmesh_core.errors import FailureKind
from flowmesh_worker.instances.oom import OomKills, OomVictims

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

_LARGE = "select range as n, md5(range::varchar) as t from range(60000)"


@contextmanager
def small_disk(path: Path, mib: int) -> Iterator[None]:
    path.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"size={mib}m".encode()
    if libc.mount(b"tmpfs", str(path).encode(), b"tmpfs", 0, options) != 0:
        pytest.skip(f"no file system can be mounted here: {os.strerror(ctypes.get_errno())}")
    try:
        yield
    finally:
        libc.umount2(str(path).encode(), 2)


@contextmanager
def small_group(name: str, mib: int) -> Iterator[Path]:
    roots = [Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")]
    root = next((r for r in roots if (r / "cgroup.procs").exists()), None)
    if root is None:
        pytest.skip("no control groups here")
    group = root / f"flowmesh-test-{os.getpid()}-{name}"
    try:
        group.mkdir()
        for file in ("memory.limit_in_bytes", "memory.max"):
            if (group / file).exists():
                (group / file).write_text(str(mib << 20))
                break
        else:
            pytest.skip("no limit on memory can be set here")
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        yield group
    finally:
        with suppress(OSError):
            group.rmdir()


@pytest.mark.slow
async def test_a_host_that_the_kernel_kills_for_memory_is_out_of_memory(world: "World") -> None:
    agent = await world.worker()
    query = "select list(md5(range::varchar)) as l from range(40000000)"
    warm = await world.gateway.do(world.assignment("data.sql", params={"query": "select 1 as a"}))
    assert warm.failure is None
    (lane,) = agent.hosts
    with small_group("host", 400) as group:
        (group / "cgroup.procs").write_text(str(lane.process.pid))
        files = (group / "memory.oom_control", group / "memory.events")
        agent.hosts._oom_victims = OomVictims(OomKills(files))
        agent.hosts._oom_victims.add(lane.instance_id)
        end = await world.gateway.do(
            world.assignment("data.sql", params={"query": query}, memory_mib=4096)
        )
        assert end.failure is not None
        assert end.failure.kind == FailureKind.OUT_OF_MEMORY
        assert "kernel" in end.failure.message
    assert (await world.gateway.do(world.assignment("test.noop"))).failure is None


async def test_a_full_store_disk_fails_attempts_with_a_remedy_until_there_is_space(
    world: "World",
) -> None:
    disk = world.root / "disk"
    with small_disk(disk, 2):
        await world.use_store(disk / "store")
        await world.worker()
        end = await world.gateway.do(world.assignment("data.sql", params={"query": _LARGE}))
        assert end.failure is not None
        assert end.failure.kind == FailureKind.STORE
        assert "space" in end.failure.message + end.failure.remedy
        small = world.assignment("data.sql", params={"query": "select 1 as a"})
        assert (await world.gateway.do(small)).failure is None
        await world.leave()


async def test_a_full_local_disk_loses_no_result(world: "World") -> None:
    disk = world.root / "disk"
    with small_disk(disk, 2):
        await world.worker(cache_dir=disk / "cache")
        (disk / "ballast").write_bytes(b"\0" * (3 << 19))
        end = await world.gateway.do(world.assignment("data.sql", params={"query": _LARGE}))
        assert end.failure is None
        await world.leave()


async def test_code_that_fills_its_disk_affects_no_other_attempt(world: "World") -> None:
    await world.worker()
    code = textwrap.dedent("""
        def main():
            with open("/tmp/x", "wb") as f:
                while True:
                    f.write(b"x" * (1 << 20))
    """)
    params = {"code": code, "function": "main", "args": {}, "timeoutS": 20.0, "memoryMib": 128}
    end = await world.gateway.do(world.assignment("code.python", params=params))
    assert end.failure is not None
    assert end.failure.kind == FailureKind.USER_CODE
    assert "OSError" in end.failure.message
