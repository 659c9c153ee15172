"""What a worker does with attempts, on real hosts."""

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.blob_views import blobs_of

from flowmesh_core.errors import FailureKind, StoreFullError
from flowmesh_core.identity import digest_bytes, tree_identity
from flowmesh_core.protocol.messages import InputRef, Refused
from flowmesh_core.protocol.results import Artifact, content_artifact
from flowmesh_store.tree import store_tree
from flowmesh_worker.agent.connection import PermanentlyRefusedError
from flowmesh_worker.data.components import ComponentCache

if TYPE_CHECKING:
    from pathlib import Path

    from tests.flowmesh_worker.conftest import World

TOLD = {"kind": "bad-input", "message": "as told"}
LARGE = "select range as n, repeat('x', 40) || range as t from range(20000)"


async def test_a_noop_returns_its_value_inside_the_report(world: "World") -> None:
    await world.worker()
    end = await world.gateway.do(world.assignment("test.noop", params={"value": 7}))
    assert end.failure is None
    metrics = end.outputs["metrics"]
    assert metrics.value == {"value": 7}
    assert metrics.blob in end.inline
    assert end.usage.units == 1
    assert end.usage.peak_memory_mib > 0


async def test_a_query_reads_its_input_from_the_store(world: "World") -> None:
    await world.worker()
    rows = await world.dataset([{"q": "a", "n": i} for i in range(1000)])
    query = "select q, sum(n) as s from rows group by all"
    end = await world.gateway.do(
        world.assignment("data.sql", params={"query": query}, inputs={"rows": rows})
    )
    assert await world.rows(end) == [{"q": "a", "s": 499500}]
    assert end.usage.fetch_s > 0
    assert rows.artifact.manifest is not None
    assert end.usage.fetched_bytes == sum(c.bytes for c in rows.artifact.manifest.chunks)
    assert end.usage.units == 1000
    assert "duckdb" in end.libraries


async def test_the_files_of_a_model_count_once_among_the_fetched_bytes(world: "World") -> None:
    await world.worker()
    model = await world.model("m")
    found = []
    for _ in range(2):
        work = world.assignment("test.sleep", params={"seconds": 0}, inputs={"model": model})
        found.append((await world.gateway.do(work)).usage.fetched_bytes)
    first, again = found
    assert first > model.artifact.size_bytes, "with their manifest"
    assert again == 0


async def test_large_outputs_are_stored_before_they_are_reported(world: "World") -> None:
    await world.worker()
    end = await world.gateway.do(world.assignment("data.sql", params={"query": LARGE}))
    artifact = end.outputs["rows"]
    assert not end.inline
    assert len(artifact.manifest.chunks) > 100  # type: ignore[union-attr]
    assert await blobs_of(world.store).missing(artifact.blobs()) == set()
    assert len(await world.rows(end)) == 20000
    assert end.usage.put_s > 0


async def test_a_chunk_of_a_row_wise_step_stays_one_chunk(world: "World") -> None:
    await world.worker()
    rows = await world.dataset([{"p": str(i), "t": str(i % 2)} for i in range(500)])
    params = {"prediction": "p", "target": "t", "normalize": False}
    end = await world.gateway.do(
        world.assignment(
            "eval.exact-match", params=params, inputs={"rows": rows}, row_output="rows"
        )
    )
    assert len(end.outputs["rows"].manifest.chunks) == 1  # type: ignore[union-attr]
    assert end.outputs["metrics"].value == {"accuracy": 0.004, "count": 500}


async def test_inputs_inlined_in_an_assignment_need_no_store(world: "World") -> None:
    await world.worker()
    rows = await world.dataset([{"n": 1}, {"n": 2}], inline=True)
    query = "select sum(n) as s from rows"
    end = await world.gateway.do(
        world.assignment("data.sql", params={"query": query}, inputs={"rows": rows})
    )
    assert await world.rows(end) == [{"s": 3}]
    assert (end.usage.fetch_s, end.usage.fetched_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("engine", FailureKind.ENGINE),
        ("bad-input", FailureKind.BAD_INPUT),
        ("out-of-memory", FailureKind.OUT_OF_MEMORY),
        ("crash", FailureKind.HOST_CRASHED),
        ("kill", FailureKind.HOST_CRASHED),
    ],
)
async def test_a_failure_has_the_right_kind_and_the_worker_keeps_serving(
    world: "World", kind: str, expected: FailureKind
) -> None:
    await world.worker()
    params = {"kind": kind, "message": "as told"}
    end = await world.gateway.do(world.assignment("test.fail", params=params))
    assert end.failure is not None
    assert end.failure.kind == expected
    again = await world.gateway.do(
        world.assignment("test.fail", params={**params, "kind": "store"})
    )
    assert again.failure is not None
    assert again.failure.kind == FailureKind.STORE
    assert (await world.gateway.do(world.assignment("test.noop"))).failure is None


async def test_an_engine_error_ends_with_the_last_lines_of_its_traceback(world: "World") -> None:
    await world.worker()
    end = await world.gateway.do(
        world.assignment("test.fail", params={"kind": "engine", "message": "as told"})
    )
    assert end.failure is not None
    assert "as told" in end.failure.message
    assert "raise AskedToFailError" in end.failure.detail


async def test_a_host_killed_with_signal_9_fails_only_its_own_attempts(
    world: "World",
) -> None:
    agent = await world.worker()
    sleeping = [world.assignment("test.sleep", params={"seconds": 60}) for _ in range(3)]
    other = world.assignment("test.sleep", params={"seconds": 60}, signature=digest_bytes(b"other"))
    await world.gateway.assign(*sleeping, other)
    for a in (*sleeping, other):
        await world.gateway.phase(a.attempt_id, "running")
    lane = next(x for x in agent.hosts if x.signature == sleeping[0].signature)
    os.kill(lane.process.pid, signal.SIGKILL)
    for a in sleeping:
        end = await world.gateway.end(a.attempt_id)
        assert end.failure is not None
        assert end.failure.kind == FailureKind.HOST_CRASHED
        assert "SIGKILL" in end.failure.message
    assert other.attempt_id not in world.gateway.ends
    quick = world.assignment("test.sleep", params={"seconds": 0, "value": 1})
    assert (await world.gateway.do(quick)).failure is None


async def test_an_attempt_beyond_its_timeout_ends_and_the_host_survives(world: "World") -> None:
    agent = await world.worker()
    end = await world.gateway.do(
        world.assignment("test.sleep", params={"seconds": 60}, timeout_s=0.3)
    )
    assert end.failure is not None
    assert end.failure.kind == FailureKind.TIMEOUT
    assert 0.25 < end.usage.run_s < 30
    pids = [lane.process.pid for lane in agent.hosts]
    quick = world.assignment("test.sleep", params={"seconds": 0})
    assert (await world.gateway.do(quick)).failure is None
    assert [lane.process.pid for lane in agent.hosts] == pids


async def test_the_host_of_an_engine_that_ignores_cancellation_is_killed(
    world: "World", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowmesh_core.worker_agent.attempts.CANCEL_WITHIN_S", 0.2)
    await world.worker()
    hang = world.assignment("test.fail", params={"kind": "hang", "message": ""}, timeout_s=0.2)
    end = await world.gateway.do(hang)
    assert end.failure is not None
    assert end.failure.kind == FailureKind.TIMEOUT
    after = world.assignment("test.fail", params={"kind": "bad-input", "message": "next"})
    end = await world.gateway.do(after)
    assert end.failure is not None
    assert end.failure.message == "next"


async def test_an_attempt_that_only_waited_in_a_dead_host_runs_in_the_next(world: "World") -> None:
    await world.worker()
    assert (await world.gateway.do(world.assignment("test.fail", params=TOLD))).failure
    first, second = (
        world.assignment("test.fail", params={"kind": kind, "message": "as told"})
        for kind in ("kill", "bad-input")
    )
    await world.gateway.assign(first, second)
    assert (await world.gateway.end(first.attempt_id)).failure.kind == FailureKind.HOST_CRASHED  # type: ignore[union-attr]
    assert (await world.gateway.end(second.attempt_id)).failure.kind == FailureKind.BAD_INPUT  # type: ignore[union-attr]


async def test_a_cancelled_attempt_ends_as_cancelled_and_an_unknown_one_is_ignored(
    world: "World",
) -> None:
    await world.worker()
    a = world.assignment("test.sleep", params={"seconds": 60})
    await world.gateway.assign(a)
    await world.gateway.phase(a.attempt_id, "running")
    await world.gateway.desire(cancel=("unknown", a.attempt_id))
    end = await world.gateway.end(a.attempt_id)
    assert end.failure is not None
    assert end.failure.kind == FailureKind.CANCELLED


async def test_an_attempt_assigned_and_cancelled_in_one_message_ends_cancelled(
    world: "World",
) -> None:
    await world.worker()
    a = world.assignment("test.sleep", params={"seconds": 60})
    await world.gateway.desire(assign=(a,), cancel=(a.attempt_id,))
    end = await world.gateway.end(a.attempt_id)
    assert end.failure is not None
    assert end.failure.kind == FailureKind.CANCELLED


async def test_an_attempt_assigned_twice_runs_once(world: "World") -> None:
    await world.worker()
    a = world.assignment("test.noop", params={"value": 1})
    await world.gateway.assign(a, a)
    await world.gateway.end(a.attempt_id)
    await world.gateway.assign(a)
    await world.gateway.do(world.assignment("test.noop"))
    assert world.gateway.ends_heard.count(a.attempt_id) == 1


async def test_a_missing_engine_or_version_is_named(world: "World") -> None:
    await world.worker()
    end = await world.gateway.do(world.assignment("no.such"))
    assert end.failure is not None
    assert "no.such" in end.failure.message
    assert "test.noop" in end.failure.remedy
    end = await world.gateway.do(world.assignment("test.noop", contract=99))
    assert end.failure is not None
    assert "99" in end.failure.message


async def test_a_missing_input_blob_is_named_as_missing(world: "World") -> None:
    await world.worker()
    gone = digest_bytes(b"gone")
    pin = InputRef(content_artifact("blob", gone))
    end = await world.gateway.do(world.assignment("test.noop", inputs={"x": pin}))
    assert end.failure is not None
    assert end.failure.kind == FailureKind.MISSING_BLOB
    assert gone in end.failure.message


async def test_an_input_damaged_on_the_local_disk_is_fetched_again(world: "World") -> None:
    await world.worker()
    rows = await world.dataset([{"n": 1}])
    query = {"query": "select sum(n) as s from rows"}
    first = await world.gateway.do(
        world.assignment("data.sql", params=query, inputs={"rows": rows})
    )
    assert first.failure is None
    cached = [p for p in (world.root / "cache" / "blobs").rglob("*") if p.is_file()]
    files = [p for p in cached if p.name == rows.artifact.manifest.chunks[0].blob]  # type: ignore[union-attr]
    assert files
    for agent in world.agents:
        agent._cache._verified.clear()
    for file in files:
        file.chmod(0o644)
        file.write_bytes(b"spoiled")
    again = await world.gateway.do(
        world.assignment("data.sql", params=query, inputs={"rows": rows})
    )
    assert await world.rows(again) == [{"s": 1}]


class FullBlobs:
    """A store without space, but for reading."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def put(self, digest: str, data: "bytes | Path") -> None:
        raise StoreFullError("no space is left on the store", where="cas/")


async def test_a_full_store_fails_the_attempt_with_a_remedy_and_the_worker_keeps_serving(
    world: "World",
) -> None:
    await world.worker(blobs=FullBlobs(blobs_of(world.store)))
    end = await world.gateway.do(world.assignment("data.sql", params={"query": LARGE}))
    assert end.failure is not None
    assert end.failure.kind == FailureKind.STORE
    assert "space" in end.failure.message + end.failure.remedy
    assert (await world.gateway.do(world.assignment("test.noop"))).failure is None


async def test_a_tree_is_fetched_once_for_many_attempts_and_reported(
    world: "World", tmp_path: "Path"
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    tree = await store_tree(blobs_of(world.store), model)
    ref = InputRef(
        Artifact("model", tree_identity("model", tree.files), tree.digest, tree.size_bytes)
    )
    await world.worker()
    work = [
        world.assignment("test.sleep", params={"seconds": 0}, inputs={"m": ref}, components=("m",))
        for _ in range(5)
    ]
    await world.gateway.assign(*work)
    for a in work:
        assert (await world.gateway.end(a.attempt_id)).failure is None
    (component,) = await world.gateway.until(lambda: world.gateway.components)
    assert (component.digest, component.tier) == (ref.artifact.digest, "host")
    assert component.size_bytes == 2


async def test_attempts_share_energy_by_the_time_they_ran_together(world: "World") -> None:
    await world.worker()
    work = [world.assignment("test.sleep", params={"seconds": 0.4}) for _ in range(4)]
    began = time.monotonic()
    await world.gateway.assign(*work)
    joules = []
    for a in work:
        usage = (await world.gateway.end(a.attempt_id)).usage
        assert usage.joules_estimated
        joules.append(usage.joules)
    assert 0.95 * 50 * 0.4 < sum(joules) < 50 * (time.monotonic() - began)
    assert min(joules) > 0


async def test_a_worker_ends_its_hosts_where_an_input_cannot_be_released(
    world: "World", monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = world.agent(world.settings())
    task = asyncio.get_running_loop().create_task(agent.run())
    await world.gateway.joined("w1")
    model = await world.model("m")
    work = world.assignment("test.sleep", params={"seconds": 60}, inputs={"model": model})
    await world.gateway.assign(work)
    await world.gateway.phase(work.attempt_id, "running")
    scratch = next(iter(agent.hosts)).folder.parent

    async def fails(cache: ComponentCache) -> None:
        raise OSError("the directory is gone")

    monkeypatch.setattr(ComponentCache, "_evict", fails)
    world.gateway.refuse = Refused("another worker has this name", final=True)
    assert world.gateway.socket is not None
    await world.gateway.socket.close()
    with pytest.raises(PermanentlyRefusedError):
        await task
    assert not list(agent.hosts)
    assert not scratch.exists()
