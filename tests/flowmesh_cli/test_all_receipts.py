"""``fmesh receipt --all`` asks for all receipts at once, however many runs there are."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from tests.flowmesh_control.fabric import Fabric, control_plane, workflow
from tests.flowmesh_control.rights import EDIT, TableOfUsers

from flowmesh_api.v1.receipts import Receipt
from flowmesh_api.v1.runs import RunSummary
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.target import Target
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.receipts import note_unreadable, read_receipts, show_receipts
from flowmesh_cli.views.steps import titles_of
from flowmesh_control.api import receipts
from flowmesh_control.queries.run_views import RunViews
from flowmesh_core.errors import DamagedRecordError

RUNS = 40
STEPS = {"steps": [{"name": "one", "uses": "test.noop"}]}


class Counted(ApiClient):
    """Counts the requests."""

    asked = 0

    def call(self, *arguments: Any, **more: Any) -> bytes:
        self.asked += 1
        return super().call(*arguments, **more)


@pytest.fixture
async def fabric(tmp_path: Path) -> AsyncIterator[Fabric]:
    """Yields a fabric with runs of two tenants, alternating."""
    users = TableOfUsers({"root": {"*": EDIT}, "ada": {"team-a": EDIT}})
    control = control_plane(tmp_path, users=users)
    await control.start()
    async with ClientSession() as http:
        fabric = Fabric(tmp_path, control, http, token="root-token")
        for n in range(RUNS):
            await fabric.submit(workflow(f"w{n}", STEPS, "team-a" if n % 2 else "team-b"))
        yield fabric
    await control.stop()


def counted(fabric: Fabric, who: str) -> Counted:
    found = Counted.at(fabric.control.url, f"{who}-token")
    assert isinstance(found, Counted)
    return found


async def test_one_request_returns_the_receipts_of_all_runs(fabric: Fabric) -> None:
    http = counted(fabric, "root")
    found = (await asyncio.to_thread(read_receipts, http)).receipts
    assert http.asked == 1
    assert [r.name for r in found] == [f"w{n}" for n in range(RUNS)]
    for receipt in found[:3]:
        alone = await fabric.call("GET", f"/v1/runs/{receipt.uid}/receipt")
        assert (alone["uid"], alone["name"], alone["lines"]) == (receipt.uid, receipt.name, [])
    await asyncio.to_thread(http.close)


async def test_many_receipts_arrive_in_pages_and_each_exactly_once(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "PAGE_RUNS", 17)
    http = counted(fabric, "root")
    found = (await asyncio.to_thread(read_receipts, http)).receipts
    assert http.asked == 3
    assert [r.name for r in found] == [f"w{n}" for n in range(RUNS)]
    await asyncio.to_thread(http.close)


async def test_runs_with_damaged_records_are_named_from_every_page(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uids = [run["uid"] for run in await fabric.call("GET", "/v1/runs")]
    damaged = {uids[2], uids[30]}
    whole = RunViews.receipt

    async def receipt(views: RunViews, uid: str) -> Receipt:
        if uid in damaged:
            raise DamagedRecordError(f"runs/{uid}/ledger", "not JSON")
        return await whole(views, uid)

    monkeypatch.setattr(RunViews, "receipt", receipt)
    monkeypatch.setattr(receipts, "PAGE_RUNS", 17)
    http = counted(fabric, "root")
    page = await asyncio.to_thread(read_receipts, http)
    assert set(page.unreadable) == damaged
    assert len(page.receipts) == RUNS - 2
    monkeypatch.setattr(
        "flowmesh_cli.verbs.receipts.query_fabric", lambda _: contextlib.closing(http)
    )
    place = Target()
    await asyncio.to_thread(show_receipts, place=place, as_json=False)
    note = capsys.readouterr().err
    assert f"2 runs without a receipt, since a record is damaged: team-b/w2 ({uids[2]})" in note
    assert uids[30] in note
    await asyncio.to_thread(show_receipts, place=place, as_json=True)
    assert set(json.loads(capsys.readouterr().out)["unreadable"]) == damaged


def test_no_note_is_printed_if_every_receipt_is_readable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    note_unreadable(Terminal(as_json=False), (), {})
    assert capsys.readouterr() == ("", "")


async def test_receipts_are_shown_of_runs_that_the_user_may_list(fabric: Fabric) -> None:
    for who, namespace, named in (
        ("ada", "", {"team-a"}),
        ("ada", "team-b", set()),
        ("root", "team-b", {"team-b"}),
    ):
        http = counted(fabric, who)
        found = (await asyncio.to_thread(read_receipts, http, namespace)).receipts
        assert {r.namespace for r in found} == named
        await asyncio.to_thread(http.close)
    said = await fabric.call("GET", "/v1/receipts?after=x", status=400)
    assert said["error"]["where"] == "?after="


def test_runs_with_the_same_name_are_distinguished() -> None:
    runs = [RunSummary(f"u{n}", "same", "a", "Running", 1.0) for n in range(2)]
    runs.append(RunSummary("u3", "other", "a", "Running", 1.0))
    assert list(titles_of(runs).values()) == ["a/same (u0)", "a/same (u1)", "a/other"]
