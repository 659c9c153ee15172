"""Work survives preemption and crashes of hosts, workers and control planes by checkpoints."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.blob_views import blobs_of
from tests.failures.observe import done_units, hosts_of, ledger, step_of, until
from tests.flowmesh_control.fabric import Fabric, machine_of, workflow

from flowmesh_api.v1.runs import RunStatus
from flowmesh_api.v1.why import AttemptLine
from flowmesh_control.cache.admin import CacheAdmin
from flowmesh_control.records.archive import Archive
from flowmesh_control.records.withheld_records import WithheldRecords
from flowmesh_core.accounting.ledger_lines import CheckpointLine
from flowmesh_core.identity import digest_bytes, digest_value
from flowmesh_core.machine import checkpoints
from flowmesh_store.tree import read_tree

pytestmark = pytest.mark.slow

STEPS = 200


def counting(value: str, every: int = 5) -> dict[str, Any]:
    params = {"steps": STEPS, "stepSeconds": 0.02, "checkpointEvery": every, "value": value}
    step = {"name": "count", "uses": "test.steps", "with": params}
    return workflow("counting", {"steps": [step], "outputs": {"result": "count.metrics"}})


def whole(value: str) -> str:
    """Returns the result of an undisturbed attempt."""
    chain = ""
    for done in range(STEPS):
        chain = digest_value("test.steps", [chain, value, done])
    return chain


async def result(fabric: Fabric, status: RunStatus, value: str) -> AttemptLine:
    """Returns the attempt with the result, which must equal that of an undisturbed one."""
    assert status.phase == "Succeeded", status
    given = await fabric.call("GET", f"/v1/runs/{status.uid}/outputs/result")
    assert whole(value) in (given.decode() if isinstance(given, bytes) else str(given))

    async def line() -> AttemptLine | None:
        lines = [ln for ln in ledger(fabric, status.uid) if isinstance(ln, AttemptLine)]
        return next((ln for ln in lines if ln.outcome == "published"), None)

    found: AttemptLine = await until(line)
    return found


def newest(fabric: Fabric, uid: str) -> CheckpointLine | None:
    found = [line for line in ledger(fabric, uid) if isinstance(line, CheckpointLine)]
    return found[-1] if found else None


async def test_an_action_resumes_on_another_worker_after_a_killed_host_and_a_preemption(
    fabric: Fabric,
) -> None:
    first = fabric.worker("local-w1", "--grace", "3")
    uid = await fabric.submit(counting("a"))
    await done_units(fabric, uid, 30)
    (host,) = hosts_of(first)
    host.kill()
    await done_units(fabric, uid, 45)
    assert (await step_of(fabric, uid)).workers == ("local-w1",)
    fabric.worker("local-w2")
    first.terminate()
    status = await fabric.ended(uid)
    line = await result(fabric, status, "a")
    assert line.worker == "local-w2"
    assert 0 < line.units < STEPS - 45
    assert newest(fabric, uid) is not None
    assert await asyncio.to_thread(first.wait, 300) == 0


async def test_an_action_resumes_from_the_ledger_after_control_plane_and_worker_are_killed(
    killable: Fabric,
) -> None:
    fabric, control = killable, killable.control
    first = fabric.worker("local-w1")
    uid = await fabric.submit(counting("b", every=25))
    await done_units(fabric, uid, 26)

    async def written() -> CheckpointLine | None:
        return newest(fabric, uid)

    line = await until(written)
    control.kill()  # type: ignore[attr-defined]
    first.kill()
    first.wait()
    await control.start(fabric.http)  # type: ignore[arg-type]
    fabric.worker("local-w2")
    status = await fabric.ended(uid)
    published = await result(fabric, status, "b")
    assert published.units == STEPS - line.done


async def test_a_damaged_checkpoint_loses_only_the_work_done_so_far(fabric: Fabric) -> None:
    first = fabric.worker("local-w1", "--grace", "3")
    uid = await fabric.submit(counting("c"))
    await done_units(fabric, uid, 20)
    first.terminate()
    assert await asyncio.to_thread(first.wait, 300) == 0
    ((_, kept),) = checkpoints.roots(machine_of(fabric.control).state)
    damaged = damage(fabric, kept.digest)
    fabric.worker("local-w2")
    published = await result(fabric, await fabric.ended(uid), "c")
    assert (published.worker, published.units) == ("local-w2", STEPS)
    # The second attempt may have kept the same step's again.
    assert not damaged.exists() or digest_bytes(damaged.read_bytes()) == kept.digest


async def test_a_collection_keeps_the_files_of_an_unfinished_actions_checkpoint(
    fabric: Fabric,
) -> None:
    fabric.worker("local-w1")
    uid = await fabric.submit(counting("d", every=100))
    store, state = fabric.control.services.store, machine_of(fabric.control).state
    cleaning = CacheAdmin(
        store=store,
        state=state,
        archive=Archive(store.records),
        result_ttl_s=60.0,
        withheld=WithheldRecords(store),
        clock=fabric.control.services.epoch.now_s,
        collected=lambda: None,
    )

    async def looked() -> Any:
        """Returns the newest checkpoint and the blobs that a collection keeps, at one moment."""
        before = checkpoints.roots(state)
        live = set[str]().union(*(await cleaning.live()).values())
        same = before and before == checkpoints.roots(state)
        return (await read_tree(blobs_of(store), before[0][1].digest), live) if same else None

    tree, live = await until(looked)
    assert {tree.digest, *(f.digest for f in tree.files)} <= live
    await fabric.call("POST", f"/v1/runs/{uid}/cancel")
    await fabric.ended(uid)
    live = set[str]().union(*(await cleaning.live()).values())
    assert not {f.digest for f in tree.files} & live


def damage(fabric: Fabric, digest: str) -> Path:
    """Changes a byte of a blob; returns its path."""
    (path,) = (fabric.root / "store" / "cas").glob(f"**/{digest}")
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-1] + b" ")
    return path
