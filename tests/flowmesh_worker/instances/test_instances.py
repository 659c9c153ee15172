"""Hosts are kept warm, closed for room, and ended where they outgrow what they reserved."""

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.blob_views import blobs_of
from tests.flowmesh_worker.engine_hosts import engine_hosts
from tests.flowmesh_worker.instances.test_host_process import until

from flowmesh_core.errors import FailureKind
from flowmesh_core.identity import digest_bytes

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

    from flowmesh_core.units import Digest
    from flowmesh_worker.agent.agent import Agent


async def test_attempts_of_one_signature_share_a_host_and_run_at_once(world: "World") -> None:
    agent = await world.worker()
    work = [world.assignment("test.sleep", params={"seconds": 0.5}) for _ in range(40)]
    loop = asyncio.get_running_loop()
    began = loop.time()
    await world.gateway.assign(*work)
    for a in work:
        await world.gateway.end(a.attempt_id)
    assert loop.time() - began < 5
    assert len(list(agent.hosts)) == 1


async def test_the_idle_host_used_longest_ago_makes_room(world: "World") -> None:
    agent = await world.worker(memory_mib=1000)
    signatures = [digest_bytes(bytes([i])) for i in range(3)]
    for s in (signatures[0], signatures[1], signatures[0]):
        a = world.assignment("test.noop", signature=s, memory_mib=400)
        assert (await world.gateway.do(a)).failure is None
    a = world.assignment("test.noop", signature=signatures[2], memory_mib=400)
    assert (await world.gateway.do(a)).failure is None
    assert {lane.signature for lane in agent.hosts} == {signatures[0], signatures[2]}
    assert sum(i.reservation.memory_mib for i in agent.machine.state.instances.values()) <= 1000


async def test_an_isolated_attempt_has_a_separate_host_that_is_closed_after_it(
    world: "World",
) -> None:
    agent = await world.worker()
    assert (await world.gateway.do(world.assignment("test.noop"))).failure is None
    shared = {lane.process.pid for lane in agent.hosts}
    alone = world.assignment("test.noop", isolate=True)
    assert (await world.gateway.do(alone)).failure is None
    await world.gateway.until(lambda: len(world.gateway.lanes) == 1)
    assert {lane.process.pid for lane in agent.hosts} == shared


class WatchedBlobs:
    """A store that looks at the worker's hosts while an output is put into it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.agent: Agent | None = None
        self.states: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def put(self, digest: "Digest", data: bytes | Path) -> None:
        if isinstance(data, Path):
            assert self.agent is not None
            self.states += [i.state for i in self.agent.machine.state.instances.values()]
        await self._inner.put(digest, data)


async def test_a_host_is_not_closed_before_the_files_of_its_attempt_are_stored(
    world: "World",
) -> None:
    blobs = WatchedBlobs(blobs_of(world.store))
    agent = blobs.agent = await world.worker(blobs=blobs, memory_mib=1000)
    large = {"query": "select string_agg(md5(range::varchar), '') as s from range(80000)"}
    alone = world.assignment("data.sql", params=large, isolate=True, memory_mib=800)
    waiting = world.assignment("test.noop", memory_mib=800)
    await world.gateway.assign(alone, waiting)
    assert len((await world.rows(await world.gateway.end(alone.attempt_id)))[0]["s"]) == 2_560_000
    assert blobs.states == ["ready"]
    assert (await world.gateway.end(waiting.attempt_id)).failure is None
    await world.gateway.until(lambda: len(world.gateway.lanes) == 1)
    assert [lane.engine for lane in agent.hosts] == ["test.noop"]


async def test_the_log_of_an_attempt_begins_after_that_of_the_one_it_waited_for(
    world: "World",
) -> None:
    await world.worker()
    code = "def main(said):\n  print(said)\n  return [{'n': 1}]"
    said = ["of the first", "of the second", "of the third"]
    given = {"code": code, "function": "main", "timeoutS": 60.0, "memoryMib": 512}
    work = [
        world.assignment("code.python", params={**given, "args": {"said": text}}) for text in said
    ]
    await world.gateway.assign(*work)
    logs = [(await world.gateway.end(a.attempt_id, 60)).log for a in work]
    assert [[text for text in said if text in log] for log in logs] == [[text] for text in said]


async def test_a_host_that_outgrows_its_reservation_is_ended_as_out_of_memory(
    world: "World", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowmesh_worker.instances.memory_watch.WATCH_EVERY_S", 0.1)
    await world.worker()
    query = (
        "select count(distinct a.range * 200000 + b.range) as c from range(8000) a, range(8000) b"
    )
    end = await world.gateway.do(
        world.assignment("data.sql", params={"query": query}, memory_mib=128), 60
    )
    assert end.failure is not None
    assert end.failure.kind == FailureKind.OUT_OF_MEMORY
    assert (await world.gateway.do(world.assignment("test.noop"))).failure is None


def hosts() -> set[int]:
    """Process ids of the engine hosts that the agent of this process has started."""
    return {process.pid for process in engine_hosts(recursive=False)}


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["loading", "running"])
async def test_a_host_that_hangs_is_ended_as_crashed_and_its_silence_is_shown_before(
    phase: str, world: "World", monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = "flowmesh_worker.instances.heartbeat_watch"
    monkeypatch.setattr("flowmesh_worker.instances.host_process.BEAT_S", 0.05)
    monkeypatch.setattr(f"{watch}.BEAT_S", 0.1)
    monkeypatch.setattr("flowmesh_core.worker_agent.state.SILENCE_REPORTED_FROM_S", 1.0)
    monkeypatch.setattr(f"{watch}.SILENCE_REPORTED_FROM_S", 1.0)
    await world.worker()
    healthy = world.assignment("test.sleep", params={"seconds": 12.0, "value": 2}, isolate=True)
    await world.gateway.assign(healthy)
    await world.gateway.phase(healthy.attempt_id, "running")
    others = hosts()
    stopped = world.assignment("test.sleep", params={"seconds": 300.0, "value": 1})
    await world.gateway.assign(stopped)
    if phase == "running":
        await world.gateway.phase(stopped.attempt_id, phase)
    await until(lambda: bool(hosts() - others))
    (host,) = hosts() - others
    os.kill(host, signal.SIGSTOP)
    monkeypatch.setattr("flowmesh_core.worker_agent.instances.SILENT_MAX_S", 5.0)
    end = await world.gateway.end(stopped.attempt_id)
    assert end.failure is not None
    assert end.failure.kind == FailureKind.HOST_CRASHED
    assert "stood still" in end.failure.message
    assert any(lane.silent_s > 1 for sync in world.gateway.syncs for lane in sync.instances or ())
    assert (await world.gateway.end(healthy.attempt_id)).failure is None
