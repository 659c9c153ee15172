"""The control plane is killed, and started again on the same store."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import ClientError, ClientSession
from tests.flowmesh_control.fabric import Fabric, control_plane, workflow
from tests.flowmesh_control.test_end_to_end import accounts, paid, sleeps, status_of

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.records.epochs import SupersededError
from flowmesh_core.catalog.builtin import contracts
from flowmesh_core.catalog.catalog import Catalog

pytestmark = pytest.mark.slow


class Elsewhere:
    """A control plane in another process, seen by its address."""

    def __init__(self, root: Path, module: str = "tests.flowmesh_control.serve") -> None:
        self._module = module
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._root = root
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, http: ClientSession) -> int:
        """Starts it and waits until it serves; its epoch."""
        log = (self._root / "control.log").open("ab")
        arguments = [sys.executable, "-m", self._module, str(self._root)]
        self._process = subprocess.Popen(  # noqa: ASYNC220 - a fork, done at once
            [*arguments, str(self.port)], env=os.environ, stdout=log, stderr=log
        )
        log.close()
        async with asyncio.timeout(180):
            while True:
                with contextlib.suppress(ClientError):
                    async with http.get(self.url + "/healthz") as response:
                        return int((await response.json())["epoch"])
                assert self._process.poll() is None, (self._root / "control.log").read_text()
                await asyncio.sleep(0.05)

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


@pytest.fixture
async def fabric_elsewhere(tmp_path: Path) -> AsyncIterator[Fabric]:
    control = Elsewhere(tmp_path)
    async with ClientSession() as http:
        fabric = Fabric(tmp_path, control, http)  # type: ignore[arg-type]
        await control.start(http)
        yield fabric
        await asyncio.to_thread(fabric.close)
        control.kill()


async def test_a_killed_control_plane_resumes_its_runs_and_repeats_no_published_action(
    fabric_elsewhere: Fabric,
) -> None:
    fabric, control = fabric_elsewhere, fabric_elsewhere.control
    fabric.worker("local-w1")
    done = await fabric.ended(await fabric.submit(workflow("done", sleeps(0.1))))
    uid = await fabric.submit(workflow("chain", _chain(6)))

    await until_status(fabric, uid, lambda s: s.executed >= 2)
    control.kill()  # type: ignore[attr-defined]
    assert await control.start(fabric.http) == 2  # type: ignore[arg-type,func-returns-value]
    status = await fabric.ended(uid)
    assert status.phase == "Succeeded", status
    assert status.executed == 6
    attempts = [line for step in status.steps for line in await _attempts(fabric, uid, step.path)]
    published = [a["action_id"] for a in attempts if a["outcome"] == "published"]
    # What was published in the last moment before the kill may be missing from the ledger.
    assert 5 <= len(published) == len(set(published)) <= 6
    assert (await fabric.call("GET", f"/v1/runs/{done.uid}"))["phase"] == "Succeeded"
    totals = await accounts(fabric)
    receipts = [await paid(fabric, u) for u in (uid, done.uid)]
    assert [r.executed for r in receipts] == [6, done.executed]
    assert totals.receipts_nanousd == sum(r.paid_nanousd for r in receipts)
    assert totals.bill_nanousd == totals.receipts_nanousd + totals.fabric_nanousd


async def test_a_runs_end_waits_for_an_unstored_output_even_across_a_kill(
    fabric_elsewhere: Fabric,
) -> None:
    fabric, control = fabric_elsewhere, fabric_elsewhere.control
    fabric.worker("local-w1")
    cas = fabric.root / "store" / "cas"
    cas.symlink_to(cas)  # nothing can be read or written below it: the store is unavailable
    step = {"name": "one", "uses": "test.noop", "with": {"value": 7}}
    uid = await fabric.submit(
        workflow("small", {"steps": [step], "outputs": {"seven": "one.metrics"}})
    )
    run = fabric.root / "store" / "runs" / uid

    def verdict_is_known() -> bool:
        return any(b"Succeeded" in s.read_bytes() for s in run.glob("ledger/*"))

    async with asyncio.timeout(180):
        while True:
            if verdict_is_known() and (await accounts(fabric)).trouble:
                break
            await asyncio.sleep(0.05)
    assert not (run / "final").exists()
    control.kill()  # type: ignore[attr-defined]
    assert not (run / "final").exists()
    cas.unlink()
    await control.start(fabric.http)  # type: ignore[arg-type,func-returns-value]
    status = await fabric.ended(uid)
    assert (status.phase, status.executed) == ("Succeeded", 1)
    assert (await fabric.call("GET", f"/v1/runs/{uid}/outputs/seven"))["value"] == 7


async def test_an_attempt_that_outlives_the_control_plane_is_adopted_not_repeated(
    fabric_elsewhere: Fabric,
) -> None:
    fabric, control = fabric_elsewhere, fabric_elsewhere.control
    fabric.worker("local-w1")
    uid = await fabric.submit(workflow("slow", sleeps(4)))

    await until_status(fabric, uid, lambda s: s.counts.get("RUNNING", 0) > 0)
    control.kill()  # type: ignore[attr-defined]
    await control.start(fabric.http)  # type: ignore[arg-type]
    status = await fabric.ended(uid)
    assert status.phase == "Succeeded", status
    attempts = await _attempts(fabric, uid, "s0")
    assert [a["outcome"] for a in attempts] == ["published"]
    assert "/1-" in attempts[0]["attempt_id"]


async def test_a_run_continues_after_a_clean_stop_and_start(tmp_path: Path) -> None:
    async with ClientSession() as http:
        first = control_plane(tmp_path)
        await first.start()
        fabric = Fabric(tmp_path, first, http)
        uid = await fabric.submit(workflow("slow", sleeps(0.2, 3)))
        await first.stop()
        second = control_plane(tmp_path)
        await second.start()
        fabric.control = second
        fabric.worker("local-w1")
        status = await fabric.ended(uid)
        assert status.phase == "Succeeded"
        await asyncio.to_thread(fabric.close)
        await second.stop()


async def test_a_superseded_control_plane_stops(tmp_path: Path) -> None:
    first, second = control_plane(tmp_path), control_plane(tmp_path)
    await first.start()
    await second.start()
    first._later_epoch_seen(2)
    with pytest.raises(SupersededError):
        await asyncio.wait_for(first.wait(), 60)
    await first.stop()
    assert second.services.epoch.number == 2
    await second.stop()


async def test_a_run_pinned_to_a_removed_engine_waits_and_shows_the_reason(tmp_path: Path) -> None:
    first = control_plane(tmp_path)
    await first.start()
    async with ClientSession() as http:
        fabric = Fabric(tmp_path, first, http)
        uid = await fabric.submit(workflow("slow", sleeps(1)))
        await first.stop()
        second = control_plane(tmp_path)
        second._catalog = Catalog([c for c in contracts() if c.name != "test.sleep"])
        await second.start()
        fabric.control = second
        shown = await fabric.call("GET", f"/v1/runs/{uid}")
        assert shown["phase"] == "Suspended"
        assert "test.sleep version 1.1" in shown["message"]
        await second.stop()


async def until_status(fabric: Fabric, uid: str, condition: Callable[[RunStatus], object]) -> None:
    async with asyncio.timeout(180):
        while not condition(await status_of(fabric, uid)):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


async def _attempts(fabric: Fabric, uid: str, step: str) -> list[dict[str, str]]:
    why = await fabric.call("GET", f"/v1/runs/{uid}/why?step={step}")
    found: list[dict[str, str]] = why["attempts"]
    return found


def _chain(count: int) -> dict[str, object]:
    steps = []
    for i in range(count):
        inputs = {"before": f"s{i - 1}.metrics"} if i else {}
        params = {"seconds": 0.4, "value": i}
        steps.append({"name": f"s{i}", "uses": "test.sleep", "inputs": inputs, "with": params})
    return {"steps": steps, "outputs": {"last": f"s{count - 1}.metrics"}}
