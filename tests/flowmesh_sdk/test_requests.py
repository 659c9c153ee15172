"""A client at a control plane: uploads, mistakes, refusals, and answers that are cut off."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.attacks.by_hand import place
from tests.flowmesh_control.fabric import API_TOKEN
from tests.flowmesh_sdk.test_workflow import TEXT

import flowmesh_sdk as fm

T = TypeVar("T")


async def at(url: str, ask: Callable[[fm.Client], T]) -> T:
    """Asks in a thread, with a client of its own."""

    def asked() -> T:
        with fm.connect(url, token=API_TOKEN) as client:
            return ask(client)

    return await asyncio.to_thread(asked)


async def test_every_mistake_has_its_line_and_nothing_runs(tmp_path: Path) -> None:
    (tmp_path / "numbers.jsonl").write_text('{"a": 1}\n')
    file = tmp_path / "flow.yaml"
    file.write_text(TEXT.replace("data.sql", "data.sqll").replace("double.rows", "duble.rows"))
    async with place() as there:
        found = await at(there.control.url, lambda c: c.validate(fm.load(file)))
        assert [p.line for p in found] == [12, 15]
        assert "did you mean 'data.sql'" in found[0].message
        assert await at(there.control.url, lambda c: c.list_runs()) == []


async def test_a_file_that_is_not_of_its_format_has_the_line_of_its_input(tmp_path: Path) -> None:
    (tmp_path / "numbers.jsonl").write_text('{"a": }\n')
    (tmp_path / "flow.yaml").write_text(TEXT)
    async with place() as there:
        with pytest.raises(fm.InvalidWorkflowError, match=r"flow\.yaml:8:15: .*line 1: not JSON"):
            await at(there.control.url, lambda c: c.submit(fm.load(tmp_path / "flow.yaml")))


async def test_a_missing_file_is_found_before_anything_is_uploaded(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(TEXT)
    async with place() as there:
        with pytest.raises(fm.InvalidWorkflowError, match=r"flow\.yaml:8:15: .*does not exist"):
            await at(there.control.url, lambda c: c.submit(fm.load(file)))


async def test_a_valid_workflow_is_planned_submitted_and_cancelled(tmp_path: Path) -> None:
    (tmp_path / "numbers.jsonl").write_text('{"a": 1}\n')
    file = tmp_path / "flow.yaml"
    file.write_text(TEXT)
    async with place() as there:
        await asyncio.to_thread(submit_and_leave, there.control.url, fm.load(file))


def submit_and_leave(url: str, workflow: fm.Workflow) -> None:
    with fm.connect(url, token=API_TOKEN) as client:
        assert client.validate(workflow) == []
        planned = client.plan(workflow)
        assert planned.usd is None
        assert "not known" in str(planned)
        run, same = client.submit(workflow), client.submit(workflow)
        assert run.uid == same.uid
        assert run.leave().phase not in ("Cancelled", "Failed")  # the other submission wants it
        with pytest.raises(fm.RunTimeoutError, match="it goes on"):
            run.wait(timeout_s=0)
        same.leave()
        with pytest.raises(fm.RunFailedError) as failed:
            run.wait()
        assert failed.value.phase == "Cancelled"
        assert client.get_run("doubled").uid == run.uid
        run.delete()
        same.delete()
        assert client.list_runs() == []
        suspended = client.submit(workflow)
        with pytest.raises(fm.ApiError, match="has not ended") as going:
            suspended.delete()
        assert going.value.status == 409
        assert "fmesh cancel" in going.value.remedy


async def test_the_place_of_an_error_is_a_run_or_an_argument_and_not_a_query(
    tmp_path: Path,
) -> None:
    (tmp_path / "numbers.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "flow.yaml").write_text(TEXT)
    async with place() as there:
        url, workflow = there.control.url, fm.load(tmp_path / "flow.yaml")
        await asyncio.to_thread(refuse_steps_and_days, url, workflow)


def refuse_steps_and_days(url: str, workflow: fm.Workflow) -> None:
    with fm.connect(url, token=API_TOKEN) as client:
        run = client.submit(workflow)
        refuse_step(run)
        run.cancel()
        refuse_step(run)
        for call, place, message in (
            (lambda: run.why(""), "step", "the step is missing"),
            (lambda: client.bill(since="today"), "since", "'today' is not a day"),
        ):
            with pytest.raises(fm.ApiError) as refused:
                call()
            assert (refused.value.where, refused.value.message) == (place, message)
            assert "?" not in str(refused.value)


def refuse_step(run: fm.Run) -> None:
    for call in (run.why, run.explain, run.logs):
        with pytest.raises(fm.ApiError) as refused:
            call("duble")
        assert str(refused.value) == f"run {run.uid}: no step 'duble'\n  it has double"


async def test_a_wrong_token_and_an_unknown_run_are_refused_with_their_status() -> None:
    async with place() as there:
        with pytest.raises(fm.ApiError) as unknown:
            await at(there.control.url, lambda c: c.get_run("missing"))
        assert unknown.value.status == 404
        stranger = fm.connect(there.control.url, token="wrong")
        with pytest.raises(fm.ApiError) as refused:
            await asyncio.to_thread(stranger.list_runs)
        assert refused.value.status == 401
        stranger.close()


async def test_rows_that_are_cut_off_are_an_error_not_fewer_rows() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{"a": 1}\n\r\n')
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = fm.connect(f"http://127.0.0.1:{port}", token="t")
        rows = fm.Rows(client._http, "/v1/runs/r/outputs/rows", count=2)
        assert await asyncio.to_thread(rows.head, 1) == [{"a": 1}]
        with pytest.raises(fm.FlowMeshError, match="incomplete"):
            await asyncio.to_thread(rows.to_list)


async def test_a_fabric_that_is_away_is_an_error_of_its_own() -> None:
    client = fm.connect("http://127.0.0.1:9", token="t")
    with pytest.raises(fm.FabricUnavailableError, match="does not answer"):
        await asyncio.to_thread(client.list_runs)
