"""Checkpoints at the worker: handed over by real hosts, stored, told, and taken up again."""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.blob_views import OneView, blobs_of
from tests.flowmesh_worker.engine_hosts import engine_hosts

from flowmesh_core.identity import digest_bytes
from flowmesh_core.protocol.messages import Checkpoint, InputRef
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent.events import CheckpointStored, Event
from flowmesh_store.cache.blob_cache import BlobCache
from flowmesh_store.cache.caching_blobs import CachingViews
from flowmesh_store.tree import fetch_tree, read_tree, store_tree
from flowmesh_worker.agent.checkpoints import Checkpoints

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

    from flowmesh_core.protocol.messages import Assignment

LONG = {"steps": 100_000, "stepSeconds": 0.01, "checkpointEvery": 5}


def steps(world: "World", resume: Digest | None = None, **params: Any) -> "Assignment":
    ref = InputRef(Artifact("checkpoint", resume, resume)) if resume else None
    values = {"steps": 20, "stepSeconds": 0.0, "checkpointEvery": 0, "value": None, **params}
    return world.assignment("test.steps", params=values, resume=ref)


def request(text: str, max_tokens: int) -> dict[str, Any]:
    """A row of ``test.openai``, which takes a millisecond a token."""
    messages = [{"role": "user", "content": text}]
    body = {"model": "m", "messages": messages, "max_tokens": max_tokens}
    return {"url": "/v1/chat/completions", "body": body}


def told(world: "World", attempt_id: str) -> list[Checkpoint]:
    found = [c for sync in world.gateway.syncs for c in sync.checkpoints]
    return [c for c in found if c.attempt_id == attempt_id]


async def chain(world: "World", resume: Digest | None = None, **params: Any) -> Any:
    """The engine's result and usage of one attempt."""
    end = await world.gateway.do(steps(world, resume, **params))
    assert end.failure is None, end.failure
    value = end.outputs["metrics"].value
    assert value is not None
    return value["chain"], end.usage


async def checkpoint(world: "World", folder: Path, done: int) -> Digest:
    """A stored checkpoint of 20 steps, made by an attempt that was cancelled after ``done``."""
    attempt = steps(world, steps=done + 1000, checkpointEvery=done, stepSeconds=0.01)
    await world.gateway.assign(attempt)
    await world.gateway.until(lambda: told(world, attempt.attempt_id))
    await world.gateway.desire(cancel=(attempt.attempt_id,))
    await world.gateway.end(attempt.attempt_id)
    return told(world, attempt.attempt_id)[0].digest


def harm(world: "World", digest: Digest, content: bytes) -> None:
    """Another content of the same size where the blob was, or none."""
    (path,) = Path(world.store.url.removeprefix("file://")).glob(f"cas/**/{digest}")
    path.unlink()
    if content:
        path.write_bytes(content)


async def test_a_checkpoint_is_stored_before_it_is_reported(world: "World", tmp_path: Path) -> None:
    await world.worker()
    attempt = steps(world, **LONG)
    await world.gateway.assign(attempt)
    await world.gateway.until(lambda: len(told(world, attempt.attempt_id)) > 1)
    first, second = told(world, attempt.attempt_id)[:2]
    assert 0 < first.done < second.done
    await fetch_tree(blobs_of(world.store), second.digest, tmp_path / "got")
    assert json.loads((tmp_path / "got" / "state.json").read_text())["done"] == second.done
    await world.gateway.desire(cancel=(attempt.attempt_id,))
    end = await world.gateway.end(attempt.attempt_id)
    assert end.failure is not None
    assert end.failure.kind == "cancelled"


async def test_an_attempt_resumes_from_the_given_checkpoint_with_the_same_result(
    world: "World", tmp_path: Path
) -> None:
    await world.worker()
    whole, usage = await chain(world)
    assert (usage.units, usage.resumed) == (20, False)
    digest = await checkpoint(world, tmp_path, 5)
    resumed, usage = await chain(world, digest)
    assert resumed == whole
    assert (usage.units, usage.resumed) == (15, True)


@pytest.mark.parametrize("damage", ["no tree", "no file", "another file"])
async def test_a_damaged_checkpoint_is_reported_and_the_attempt_starts_from_scratch(
    world: "World", tmp_path: Path, damage: str
) -> None:
    await world.worker()
    whole, _ = await chain(world)
    (tmp_path / "made").mkdir()
    state = {"done": 5, "chain": "elsewhere"}
    (tmp_path / "made" / "state.json").write_text(json.dumps(state))
    tree = await store_tree(blobs_of(world.store), tmp_path / "made")
    lost = tree.digest if damage == "no tree" else tree.files[0].digest
    harm(world, lost, b" " * tree.files[0].bytes if damage == "another file" else b"")
    attempt = steps(world, tree.digest)
    end = await world.gateway.do(attempt)
    assert end.failure is None
    assert end.outputs["metrics"].value == {"value": None, "chain": whole}
    assert (end.usage.units, end.usage.resumed) == (20, False)
    assert told(world, attempt.attempt_id) == [
        Checkpoint(attempt.attempt_id, tree.digest, spoiled=(lost,), token=attempt.token)
    ]


async def test_an_attempt_starts_over_if_the_engine_cannot_use_its_checkpoint(
    world: "World", tmp_path: Path
) -> None:
    await world.worker()
    whole, _ = await chain(world)
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "state.json").write_text("of another version")
    tree = await store_tree(blobs_of(world.store), tmp_path / "made")
    again, usage = await chain(world, tree.digest)
    assert again == whole
    assert usage.units == 20


async def test_a_draining_worker_returns_an_attempt_with_a_current_checkpoint(
    world: "World",
) -> None:
    agent = await world.worker(grace_s=60.0)
    attempt = steps(world, **(LONG | {"checkpointEvery": 50_000}))
    await world.gateway.assign(attempt)
    await world.gateway.until(
        lambda: any(p.done > 3 for p in world.gateway.progress.get(attempt.attempt_id, ()))
    )
    agent.stop()
    end = await world.gateway.end(attempt.attempt_id, within_s=400)
    assert end.failure is not None
    assert end.failure.kind == "drained"
    (left,) = told(world, attempt.attempt_id)
    assert left.done > 3
    assert (await read_tree(blobs_of(world.store), left.digest)).size_bytes > 0


async def test_an_attempt_that_would_end_within_half_of_the_grace_period_is_not_interrupted(
    world: "World",
) -> None:
    agent = await world.worker(grace_s=60.0)
    attempt = steps(world, steps=100, stepSeconds=0.02, checkpointEvery=50_000)
    await world.gateway.assign(attempt)
    await world.gateway.until(
        lambda: len([p for p in world.gateway.progress.get(attempt.attempt_id, ()) if p.done]) > 1
    )
    agent.stop()
    end = await world.gateway.end(attempt.attempt_id)
    assert end.failure is None
    assert end.usage.units == 100


async def test_the_newest_checkpoint_of_a_killed_host_is_reported_before_its_end(
    world: "World",
) -> None:
    await world.worker()
    attempt = steps(world, **LONG)
    await world.gateway.assign(attempt)
    await world.gateway.until(lambda: told(world, attempt.attempt_id))
    for host in engine_hosts():
        host.kill()
    end = await world.gateway.end(attempt.attempt_id)
    assert end.failure is not None
    assert end.failure.kind == "host-crashed"
    newest = told(world, attempt.attempt_id)[-1]
    assert (await read_tree(blobs_of(world.store), newest.digest)).size_bytes > 0


async def test_what_a_killed_host_wrote_to_its_journal_is_where_the_next_attempt_begins(
    world: "World",
) -> None:
    await world.worker()
    rows = await world.dataset([request("a", 1), request("b", 500), request("c", 1_000_000)])
    attempt = world.assignment("test.openai", inputs={"rows": rows})
    await world.gateway.assign(attempt)
    await world.gateway.until(
        lambda: any(p.done == 2 for p in world.gateway.progress.get(attempt.attempt_id, ()))
    )
    (host,) = engine_hosts()
    host.kill()
    end = await world.gateway.end(attempt.attempt_id)
    assert end.failure is not None
    assert end.failure.kind == "host-crashed"
    newest = told(world, attempt.attempt_id)[-1]
    assert newest.done == 2
    again = world.assignment(
        "test.openai",
        inputs={"rows": await world.dataset([request("a", 1), request("b", 500)])},
        resume=InputRef(Artifact("checkpoint", newest.digest, newest.digest)),
    )
    done = await world.gateway.do(again)
    assert [r["response"]["status_code"] for r in await world.rows(done)] == [200, 200]
    assert all(p.done != 1 for p in world.gateway.progress.get(again.attempt_id, ()))


async def test_a_reconnecting_worker_reports_its_checkpoints_again(world: "World") -> None:
    await world.worker()
    attempt = steps(world, **LONG)
    await world.gateway.assign(attempt)
    await world.gateway.until(lambda: told(world, attempt.attempt_id))
    assert world.gateway.socket is not None
    await world.gateway.socket.close()
    await world.gateway.until(lambda: len(world.gateway.hellos) > 1)
    (again,) = world.gateway.hellos[-1].checkpoints
    assert again.done >= told(world, attempt.attempt_id)[0].done
    await world.gateway.desire(cancel=(attempt.attempt_id,))
    await world.gateway.end(attempt.attempt_id)


class SlowBlobs:
    """A store that answers when the test lets it."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.asked = asyncio.Event()
        self.put_digests: list[Digest] = []

    async def put(self, digest: Digest, data: bytes | Path) -> None:
        self.asked.set()
        await self.open.wait()
        self.put_digests.append(digest)


async def test_while_one_checkpoint_is_stored_the_newest_of_the_others_waits(
    world: "World", tmp_path: Path
) -> None:
    inner, events = SlowBlobs(), list[Event]()
    cache = BlobCache(tmp_path / "cache", budget_bytes=1 << 20)
    kept = Checkpoints(CachingViews(OneView(inner), cache), tmp_path, events.append)
    assignment = world.assignment("test.noop")
    for n in (1, 2, 3):
        made = tmp_path / "made"
        made.mkdir()
        (made / "n").write_text(str(n))
        kept.take(assignment, str(made), n)
        await inner.asked.wait()
    inner.open.set()
    await kept.settled(assignment.attempt_id)
    assert [e.checkpoint.done for e in events if isinstance(e, CheckpointStored)] == [1, 3]
    stored = {digest_bytes(str(n).encode()) for n in (1, 2, 3)} & set(inner.put_digests)
    assert stored == {digest_bytes(b"1"), digest_bytes(b"3")}


class OddBlobs:
    """A store that fails in a way that no store should, for one blob or once."""

    def __init__(self, inner: Any, digest: Digest | None = None) -> None:
        self._inner = inner
        self._digest = digest
        self.puts_failed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get(self, digest: Digest) -> bytes:
        if digest == self._digest:
            raise RuntimeError("of the client library")
        data: bytes = await self._inner.get(digest)
        return data

    async def put(self, digest: Digest, data: bytes | Path) -> None:
        if self._digest is None and not self.puts_failed:
            self.puts_failed += 1
            raise RuntimeError("of the client library")
        await self._inner.put(digest, data)


async def test_an_attempt_ends_if_its_checkpoint_cannot_be_fetched_for_an_unknown_reason(
    world: "World", tmp_path: Path
) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "state.json").write_text("{}")
    tree = await store_tree(blobs_of(world.store), tmp_path / "made")
    await world.worker(blobs=OddBlobs(blobs_of(world.store), tree.digest))
    end = await world.gateway.do(steps(world, tree.digest))
    assert end.failure is not None
    assert "of the client library" in end.failure.message


async def test_after_a_checkpoint_that_fails_for_an_unknown_reason_the_next_is_stored(
    world: "World",
) -> None:
    await world.worker(blobs=OddBlobs(blobs_of(world.store)))
    attempt = steps(world, **LONG)
    await world.gateway.assign(attempt)
    await world.gateway.until(lambda: told(world, attempt.attempt_id))
