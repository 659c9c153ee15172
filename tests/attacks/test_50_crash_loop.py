"""Attacker: T1, a tenant without a token of the API.
Action: submits a run that hangs or ends the control plane, also after each restart.
Must not happen: more than two restarts, or that runs of others do not end.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession
from tests.attacks.crashing_control import FAULTS, HANG_S, HOSTILE
from tests.flowmesh_control.fabric import Fabric, workflow
from tests.flowmesh_control.test_end_to_end import sleeps

DEATHS_MAX = 2
ENDED = ("Succeeded", "Failed", "Cancelled")


class Breakable:
    """A control plane in another process, started again whenever it has died."""

    def __init__(self, root: Path, fault: str) -> None:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.codes: list[int] = []
        self._root, self._fault = root, fault
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        arguments = ["-m", "tests.attacks.crashing_control", str(self._root), str(self.port)]
        with (self._root / "control.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *arguments, self._fault], stdout=log, stderr=log
            )

    def revive(self) -> None:
        """Starts it again if it has died."""
        code = self.process.poll()
        if code is not None:
            self.codes.append(code)
            assert len(self.codes) <= DEATHS_MAX, self.codes
            self.process = self._start()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


async def asked(fabric: Fabric, path: str) -> Any:
    """The answer, also across deaths of the control plane."""
    async with asyncio.timeout(120):
        while True:
            fabric.control.revive()  # type: ignore[attr-defined]
            with contextlib.suppress(ClientError):
                return await fabric.call("GET", path)
            await asyncio.sleep(0.05)


@pytest.fixture
async def fabric(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Fabric]:
    control = Breakable(tmp_path, request.param)
    async with ClientSession() as http:
        fabric = Fabric(tmp_path, control, http)  # type: ignore[arg-type]
        await asked(fabric, "/v1/runs")
        fabric.worker("local-w1")
        yield fabric
        await asyncio.to_thread(fabric.close)
    control.kill()


async def until_ended_or_suspended(fabric: Fabric, uid: str) -> dict[str, Any]:
    while True:
        status: dict[str, Any] = await asked(fabric, f"/v1/runs/{uid}")
        if status["phase"] in (*ENDED, "Suspended"):
            return status
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("fabric", FAULTS, indirect=True)
async def test_a_run_that_breaks_the_control_plane_is_suspended_after_two_restarts(
    fabric: Fabric,
) -> None:
    others = [await fabric.submit(workflow(f"other-{n}", sleeps(0.2, 3))) for n in range(2)]
    hostile = await fabric.submit(workflow(HOSTILE, sleeps(0.0, 2), namespace="team-t"))
    status = await until_ended_or_suspended(fabric, hostile)
    assert status["phase"] == "Suspended", status
    assert status["reason"] == "control-plane-stopped"
    assert status["message"] == "the control plane stopped twice while it worked on this run"
    assert f"fmesh cancel {hostile}" in status["remedy"]
    assert f"fmesh resume {hostile}" in status["remedy"]
    for uid in others:
        assert (await until_ended_or_suspended(fabric, uid))["phase"] == "Succeeded"
    assert len(fabric.control.codes) == DEATHS_MAX  # type: ignore[attr-defined]
    cancelled = await fabric.call("POST", f"/v1/runs/{hostile}/cancel")
    assert cancelled["phase"] == "Cancelled"


@pytest.mark.parametrize("fabric", ["killed"], indirect=True)
async def test_kills_between_events_suspend_nothing(fabric: Fabric) -> None:
    uid = await fabric.submit(workflow("long", sleeps(3600)))
    for _ in range(DEATHS_MAX):
        fabric.control.kill()  # type: ignore[attr-defined]
        assert (await asked(fabric, f"/v1/runs/{uid}"))["phase"] == "Running"


@pytest.mark.slow
@pytest.mark.parametrize("fabric", ["endless"], indirect=True)
async def test_a_process_that_was_stopped_for_a_long_time_does_not_count_as_hanging(
    fabric: Fabric,
) -> None:
    uid = await fabric.submit(workflow("long", sleeps(3600)))
    process = fabric.control.process  # type: ignore[attr-defined]
    os.kill(process.pid, signal.SIGSTOP)
    await asyncio.sleep(2 * HANG_S)  # the time that is tested
    os.kill(process.pid, signal.SIGCONT)
    assert (await asked(fabric, f"/v1/runs/{uid}"))["phase"] == "Running"
    await asyncio.sleep(HANG_S / 4)
    assert process.poll() is None
