"""A cancelled run is never taken up again, whatever became of the leader that was told."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest
from aiohttp import ClientSession
from tests.flowmesh_control.fabric import Fabric, control_plane, machine_of, sealed, workflow
from tests.flowmesh_control.runs.test_repin import catalog

from flowmesh_control.records.keys import cancelled_key, final_key, segment_key
from flowmesh_control.runs.cancellations import Cancellation, none_withdrawn
from flowmesh_core.accounting.ledger_lines import VerdictLine, encode_lines
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.errors import StoreUnavailableError
from flowmesh_core.machine.events import CancelRequested

WAITS = {
    "params": {"go": True},
    "steps": [
        {"name": "a", "uses": "test.noop", "when": "params.go", "with": {"value": 1}},
        {"name": "b", "uses": "test.noop", "when": "steps['a'].metrics.value > 0"},
    ],
    "outputs": {},
}


class _DiedError(Exception):
    """The process of the control plane ended here."""


@asynccontextmanager
async def serving(
    root: Path, contracts: Catalog | None = None, gone: Mapping[str, str] | None = None
) -> AsyncIterator[Fabric]:
    control = control_plane(root)
    control._catalog = contracts or catalog(1)
    control._withdrawn = _withdrawn(gone) if gone else none_withdrawn
    await control.start()
    async with ClientSession() as http:
        yield Fabric(root, control, http)
    await control.stop()


def _withdrawn(gone: Mapping[str, str]) -> Any:
    async def withdrawn(uids: Sequence[str]) -> Mapping[str, str]:
        return {uid: reason for uid, reason in gone.items() if uid in uids}

    return withdrawn


@pytest.fixture
async def uid(tmp_path: Path) -> str:
    """A run that waits for a worker."""
    async with serving(tmp_path) as fabric:
        return await fabric.submit(workflow("w", WAITS))


@pytest.fixture
def nothing_is_evaluated(uid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From when the run is there."""

    def refused(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a condition was evaluated")

    monkeypatch.setattr("flowmesh_core.graph.conditions.evaluate", refused)


async def _ends_cancelled(root: Path, uid: str, reason: str, **more: Any) -> None:
    async with serving(root, **more) as fabric:
        status = await fabric.ended(uid, within_s=60)
        assert (status.phase, status.message) == ("Cancelled", reason)
        records = fabric.control.services.store.records
        assert await records.read(final_key(uid)) is not None
    async with serving(root) as fabric:
        assert (await fabric.ended(uid)).phase == "Cancelled"


async def test_a_cancellation_is_durable_before_it_is_applied_to_the_machine(
    tmp_path: Path, uid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as fabric:
        control = fabric.control
        apply = machine_of(control).apply

        def dies(event: Any, now_s: float) -> Any:
            if isinstance(event, CancelRequested):
                raise _DiedError
            return apply(event, now_s)

        monkeypatch.setattr(machine_of(control), "apply", dies)
        await fabric.call("POST", f"/v1/runs/{uid}/cancel", body={"reason": "stop"}, status=500)
        with pytest.raises(_DiedError):
            await fabric.control.wait()
        assert await control.services.store.records.read(cancelled_key(uid)) is not None
        assert await control.services.store.records.read(final_key(uid)) is None

    def refused(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a condition was evaluated")

    monkeypatch.setattr("flowmesh_core.graph.conditions.evaluate", refused)
    await _ends_cancelled(tmp_path, uid, "stop")


@pytest.mark.usefixtures("nothing_is_evaluated")
async def test_a_run_whose_object_was_deleted_while_there_was_no_leader_is_not_resumed(
    tmp_path: Path, uid: str
) -> None:
    await _ends_cancelled(
        tmp_path, uid, "its object was deleted", gone={uid: "its object was deleted"}
    )


@pytest.mark.usefixtures("nothing_is_evaluated")
async def test_a_run_cancelled_but_not_ended_by_an_older_release_is_not_resumed(
    tmp_path: Path, uid: str
) -> None:
    store = control_plane(tmp_path)._store
    lines = encode_lines([VerdictLine(1.0, "Cancelled", message="stop")])
    await sealed(store).write(segment_key(uid, 1, 9), lines)
    await _ends_cancelled(tmp_path, uid, "stop")


@pytest.mark.usefixtures("nothing_is_evaluated")
async def test_an_undecodable_cancellation_record_still_cancels(tmp_path: Path, uid: str) -> None:
    store = control_plane(tmp_path)._store
    await sealed(store).write(cancelled_key(uid), b'{"time_s": 1.0, "rea')
    await _ends_cancelled(tmp_path, uid, "cancelled")


async def test_a_cancelled_run_that_waits_for_its_engines_ends_too(
    tmp_path: Path, uid: str
) -> None:
    store = control_plane(tmp_path)._store
    await sealed(store).write(cancelled_key(uid), msgspec.json.encode(Cancellation(1.0, "stop")))
    await _ends_cancelled(tmp_path, uid, "stop", contracts=catalog(2))


async def test_a_cancelled_run_ends_once_and_the_same_workflow_may_be_submitted_again(
    tmp_path: Path, uid: str
) -> None:
    async with serving(tmp_path) as fabric:
        await fabric.call("POST", f"/v1/runs/{uid}/cancel")
        assert (await fabric.ended(uid)).message == "cancelled by the user"
        await fabric.call("POST", f"/v1/runs/{uid}/cancel", status=409)
        again = await fabric.submit(workflow("w", WAITS))
        assert again != uid
    async with serving(tmp_path) as fabric:
        assert (await fabric.call("GET", f"/v1/runs/{again}"))["phase"] == "Running"


async def test_a_run_stops_even_if_the_cancellation_record_cannot_be_written(
    tmp_path: Path, uid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as fabric:
        records = fabric.control.services.store.records
        write = type(records).write

        async def away(self: Any, key: str, *args: Any, **kwargs: Any) -> Any:
            if key == cancelled_key(uid):
                raise StoreUnavailableError("the store is away", where=key)
            return await write(self, key, *args, **kwargs)

        monkeypatch.setattr(type(records), "write", away)
        await fabric.call("POST", f"/v1/runs/{uid}/cancel", status=503)
        assert (await fabric.ended(uid)).phase == "Cancelled"


async def test_runs_that_were_not_cancelled_are_resumed(tmp_path: Path, uid: str) -> None:
    async with serving(tmp_path, gone={"another": "its object was deleted"}) as fabric:
        assert (await fabric.call("GET", f"/v1/runs/{uid}"))["phase"] == "Running"
        assert machine_of(fabric.control).state.runs[uid].steps["a"].begun


async def test_the_same_workflow_does_not_join_a_run_that_is_being_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as fabric:
        uid = await fabric.submit(workflow("w", WAITS))
        records = fabric.control.services.store.records
        write, again = records.write, list[str]()

        async def submitted_meanwhile(key: str, data: bytes, **more: Any) -> str:
            if key == cancelled_key(uid):
                again.append(await fabric.submit(workflow("w", WAITS)))
            return await write(key, data, **more)

        monkeypatch.setattr(records, "write", submitted_meanwhile)
        await fabric.call("POST", f"/v1/runs/{uid}/cancel", body={})
        assert again
        assert again != [uid]
        assert (await fabric.ended(uid)).phase == "Cancelled"
        assert (await fabric.call("GET", f"/v1/runs/{again[0]}"))["phase"] == "Running"
