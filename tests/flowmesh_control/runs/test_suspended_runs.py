"""A run that stopped the control plane twice waits until an administrator resumes it."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import ClientSession
from tests.attacks.crashing_control import HOSTILE
from tests.flowmesh_control.fabric import Fabric, control_plane, sealed, workflow
from tests.flowmesh_control.rights import EDIT, TableOfUsers

from flowmesh_control.auth.users import Users
from flowmesh_control.control_plane import ControlPlane
from flowmesh_control.loop.current_event import CurrentEventMarker
from flowmesh_control.records.suspects import record_last_death
from flowmesh_control.runs.admission import Submission
from flowmesh_control.settings import ControlSettings
from flowmesh_core.machine import steps
from flowmesh_core.machine.events import CancelRequested, Event, WorkerLost
from flowmesh_core.machine.model import Run
from flowmesh_core.machine.state import State
from flowmesh_store.store import open_store

NOOP = {"steps": [{"name": "a", "uses": "test.noop", "with": {"value": 1}}], "outputs": {}}
USERS = TableOfUsers({"root": {"": EDIT, "*": EDIT}, "ann": {"team-a": EDIT}})
COUNTED = {"reason": "control-plane-stopped", "phase": "Suspended"}


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every event of a hostile run ends the control plane."""
    settle = steps.settle

    def breaks(state: State, run: Run, now_s: float) -> None:
        if run.plan.name == HOSTILE:
            raise MemoryError
        settle(state, run, now_s)

    monkeypatch.setattr(steps, "settle", breaks)


def pod(root: Path, name: str, users: Users = USERS) -> ControlPlane:
    """A control plane with a state folder of its own."""
    folder = root / name
    folder.mkdir(exist_ok=True)
    settings = replace(ControlSettings(), hang_s=5.0)
    return control_plane(root, users=users, settings=settings, state_folder=folder)


async def starts(root: Path, name: str) -> ControlPlane | None:
    """Starts a pod; None where it died while it took over the runs."""
    control = pod(root, name)
    try:
        await control.start()
    except MemoryError:
        await control.stop()
        return None
    return control


@contextlib.asynccontextmanager
async def serving(control: ControlPlane, user: str) -> AsyncIterator[Fabric]:
    async with ClientSession() as http:
        yield Fabric(Path(), control, http, token=f"{user}-token")
    await control.stop()


async def submitted(root: Path, name: str, run: str) -> str:
    """Submits a run by a pod, which may die of it; returns the uid."""
    control = await starts(root, name)
    assert control is not None
    with contextlib.suppress(MemoryError):
        await control.services.admission.submit(Submission(workflow(run, NOOP), uid=f"{run}-1"))
    await control.stop()
    return f"{run}-1"


async def die(root: Path, event: Event, *epochs: int) -> None:
    """Records deaths that happened while an event was applied."""
    records = sealed(open_store(root / "store"))
    for epoch in epochs:
        CurrentEventMarker.in_folder(root, epoch=epoch).begin(event)
        await record_last_death(records, root)


@pytest.mark.usefixtures("broken")
async def test_with_a_standby_a_run_causes_at_most_three_deaths(tmp_path: Path) -> None:
    other = await submitted(tmp_path, "pod-1", "other")
    uid = await submitted(tmp_path, "pod-1", HOSTILE)  # the first death
    assert await starts(tmp_path, "pod-2") is None  # before the first pod is back
    assert await starts(tmp_path, "pod-1") is None  # before the second pod is back
    control = await starts(tmp_path, "pod-2")
    assert control is not None
    async with serving(control, "ann") as fabric:
        assert COUNTED.items() <= (await fabric.call("GET", f"/v1/runs/{uid}")).items()
        assert (await fabric.call("GET", f"/v1/runs/{other}"))["phase"] == "Running"


@pytest.mark.usefixtures("broken")
async def test_with_one_replica_a_run_causes_at_most_two_deaths(tmp_path: Path) -> None:
    uid = await submitted(tmp_path, "pod-1", HOSTILE)
    assert await starts(tmp_path, "pod-1") is None
    control = await starts(tmp_path, "pod-1")
    assert control is not None
    async with serving(control, "ann") as fabric:
        assert COUNTED.items() <= (await fabric.call("GET", f"/v1/runs/{uid}")).items()


async def test_an_orderly_stop_counts_as_no_death(tmp_path: Path) -> None:
    uid = await submitted(tmp_path, "pod-1", "steady")
    for _ in range(3):
        control = await starts(tmp_path, "pod-1")
        assert control is not None
        assert (await control.services.runs.status(uid)).phase == "Running"
        await control.stop()


async def test_only_an_administrator_can_resume_a_suspended_run(tmp_path: Path) -> None:
    uid = await submitted(tmp_path, "pod-1", "twice")
    await die(tmp_path, CancelRequested(uid), 1, 2)
    async with serving(await _started(tmp_path), "ann") as fabric:
        for verb in ("repin", "amend"):
            body = {"suspend": False} if verb == "amend" else None
            answer = await fabric.call("POST", f"/v1/runs/{uid}/{verb}", body=body, status=409)
            assert f"fmesh resume {uid}" in answer["error"]["remedy"]
        await fabric.call("POST", f"/v1/runs/{uid}/resume", status=403)
        fabric.token = "root-token"
        resumed = await fabric.call("POST", f"/v1/runs/{uid}/resume")
        assert (resumed["phase"], resumed.get("reason", "")) == ("Running", "")
        again = await fabric.call("POST", f"/v1/runs/{uid}/resume", status=409)
        assert f"fmesh amend {uid} --resume" in again["error"]["remedy"]
        await fabric.call("POST", "/v1/runs/nothing/resume", status=404)
    async with serving(await _started(tmp_path), "ann") as fabric:
        assert (await fabric.call("GET", f"/v1/runs/{uid}"))["phase"] == "Running"


async def test_one_death_suspends_no_run(tmp_path: Path) -> None:
    uid = await submitted(tmp_path, "pod-1", "once")
    await die(tmp_path, CancelRequested(uid), 1, 1)
    async with serving(await _started(tmp_path), "ann") as fabric:
        assert (await fabric.call("GET", f"/v1/runs/{uid}"))["phase"] == "Running"


@pytest.mark.parametrize("objects", [True, False])
async def test_a_worker_with_two_deaths_is_refused_on_a_cluster_and_not_on_a_laptop(
    tmp_path: Path, *, objects: bool
) -> None:
    await die(tmp_path, WorkerLost("w1"), 1, 2)
    await die(tmp_path, WorkerLost("w2"), 3)
    control = pod(tmp_path, "pod-1")
    control._settings = replace(control._settings, objects=objects)
    await control.start()
    assert control.services.gateway._joins.refused == ({"w1"} if objects else set())
    await control.stop()


async def _started(root: Path) -> ControlPlane:
    control = await starts(root, "pod-1")
    assert control is not None
    return control
