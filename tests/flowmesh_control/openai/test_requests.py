"""Files, batches and models without a worker: what is accepted, and how the rest is refused."""

import json
from pathlib import Path

import pytest
from aiohttp import ClientSession
from openai import AsyncOpenAI, AuthenticationError, BadRequestError, NotFoundError
from tests.flowmesh_control.fabric import Fabric, control_plane
from tests.flowmesh_control.openai.batches import (
    CHAT,
    MODEL,
    created,
    encoded,
    line,
    lines_of,
    reaches,
    uploaded,
)
from tests.flowmesh_control.openai.conftest import SETTINGS, client_of

from flowmesh_api.v1.quotas import Quota
from flowmesh_control.api import openai_upload


async def test_a_file_is_stored_listed_downloaded_and_deleted(client: AsyncOpenAI) -> None:
    names = [await uploaded(client, [line(f"r{i}")]) for i in range(3)]
    file = await client.files.retrieve(names[0])
    assert (file.filename, file.purpose, file.status) == ("in.jsonl", "batch", "processed")
    content = await client.files.content(names[0])
    assert content.content == encoded([line("r0")])
    assert file.bytes == len(content.content)
    assert [f.id async for f in client.files.list(limit=2)] == names[::-1]
    deleted = await client.files.delete(names[0])
    assert deleted.deleted
    with pytest.raises(NotFoundError, match="No such File object"):
        await client.files.retrieve(names[0])
    assert [f.id async for f in client.files.list()] == names[:0:-1]


async def test_models_are_builtin_names_aliases_and_addresses(client: AsyncOpenAI) -> None:
    assert [m.id async for m in client.models.list()] == ["gpt-4o-mini", MODEL]
    assert (await client.models.retrieve("gpt-4o-mini")).id == "gpt-4o-mini"
    assert (await client.models.retrieve("hf://org/name")).id == "hf://org/name"
    with pytest.raises(NotFoundError, match="does not exist") as e:
        await client.models.retrieve("gpt-5")
    assert e.value.code == "model_not_found"


async def test_a_batch_without_a_worker_waits_and_is_listed(
    fabric: Fabric, client: AsyncOpenAI
) -> None:
    batch = await created(client, [line("a")], window="90m", metadata={"budget_usd": "2"})
    running = await reaches(client, batch.id, "in_progress")
    assert running.expires_at == running.created_at + 5400
    assert running.metadata == {"budget_usd": "2"}
    assert running.output_file_id is None
    second = await created(client, [line("b")])
    assert [b.id async for b in client.batches.list(limit=1)] == [second.id, batch.id]
    status = await fabric.call("GET", f"/v1/runs/{batch.id.replace('_', '-')}")
    assert (status["deadline_s"], status["budget_nanousd"]) == (5400.0, 2_000_000_000)


async def test_a_batch_beyond_the_quota_of_its_namespace_fails_and_one_within_it_goes_on(
    fabric: Fabric, client: AsyncOpenAI
) -> None:
    quota = Quota(name="q", namespaces=("team-a",), unfinished_runs=1)
    await fabric.control.services.quotas.replace_all([quota], {"team-a": {}})
    first = await created(client, [line("a")])
    await reaches(client, first.id, "in_progress")
    second = await created(client, [line("b")])
    failed = await reaches(client, second.id, "failed")
    assert failed.errors is not None
    assert failed.errors.data is not None
    assert failed.errors.data[0].code == "quota_exceeded"
    await client.batches.cancel(first.id)
    await reaches(client, first.id, "cancelled")
    third = await created(client, [line("b")])
    await reaches(client, third.id, "in_progress")


async def test_files_that_cannot_be_a_batch_fail_it_with_the_line(client: AsyncOpenAI) -> None:
    other = line("b")
    other["body"] = {**other["body"], "model": "gpt-4o-mini"}
    unknown = line("a")
    unknown["body"] = {**unknown["body"], "model": "gpt-5"}
    cases = {
        "mismatched_model": [line("a"), other],
        "empty_file": [""],
        "model_not_found": [unknown],
        "invalid_json_line": ["{", "{"],
    }
    for code, lines in cases.items():
        batch = await created(client, lines)
        failed = await reaches(client, batch.id, "failed")
        assert failed.errors is not None
        assert failed.errors.data is not None
        assert [e.code for e in failed.errors.data] == [code]
        if code == "mismatched_model":
            assert failed.errors.data[0].line == 2
            assert "line 2 names another model" in str(failed.errors.data[0].message)


async def test_wrong_parameters_are_errors_in_openais_shape(client: AsyncOpenAI) -> None:
    name = await uploaded(client, [line("a")])
    given = {"input_file_id": name, "endpoint": CHAT, "completion_window": "24h"}
    wrong = (
        ({"endpoint": "/v1/responses"}, "endpoint"),
        ({"completion_window": "soon"}, "completion_window"),
        ({"metadata": {"budget_usd": "much"}}, "metadata.budget_usd"),
        ({"metadata": {"budget_usd": "0"}}, "metadata.budget_usd"),
        ({"metadata": {str(i): "a" for i in range(17)}}, "metadata"),
    )
    for changes, param in wrong:
        with pytest.raises(BadRequestError) as e:
            await client.batches.create(**{**given, **changes})  # type: ignore[arg-type]
        assert (e.value.param, e.value.type) == (param, "invalid_request_error")
    with pytest.raises(NotFoundError, match="No such File object"):
        await client.batches.create(**{**given, "input_file_id": "file-x"})  # type: ignore[arg-type]
    with pytest.raises(BadRequestError, match="cannot be read"):
        await client.post("/batches", body={"input": 1}, cast_to=object)
    with pytest.raises(BadRequestError) as e:
        await client.files.create(file=("a.jsonl", b"{}"), purpose="fine-tune")
    assert e.value.param == "purpose"
    with pytest.raises(NotFoundError, match="No such Batch object"):
        await client.batches.retrieve("batch_../../x")


async def test_a_wrong_token_is_an_authentication_error(fabric: Fabric) -> None:
    async with client_of(fabric.control.url, token="wrong") as client:
        with pytest.raises(AuthenticationError) as e:
            await client.files.list()
    assert (e.value.code, e.value.type) == ("invalid_api_key", "authentication_error")


async def test_a_file_that_is_too_large_is_refused_with_413(
    fabric: Fabric, client: AsyncOpenAI
) -> None:
    limits = openai_upload.UploadLimits.__init__.__defaults__
    assert limits == (200_000_000,)
    large = {"Content-Length": str(201_000_000), "Content-Type": "multipart/form-data; boundary=a"}
    large["Authorization"] = "Bearer api-token"
    async with fabric.http.post(
        f"{fabric.control.url}/openai/v1/files", headers=large, data=_endless()
    ) as response:
        assert response.status == 413
        assert json.loads(await response.read())["error"]["code"] == "file_too_large"
    assert [f.id async for f in client.files.list()] == []


async def _endless():  # type: ignore[no-untyped-def]
    yield b"--a\r\n"


async def test_a_batch_that_was_being_validated_is_validated_by_the_next_leader(
    tmp_path: Path,
) -> None:
    control = control_plane(tmp_path, settings=SETTINGS)
    await control.start()
    async with client_of(control.url) as client:
        name = await uploaded(client, [line("a"), "{"])
        service = control.services.openai.batches
        service.waiting.put_nowait = lambda batch: None  # type: ignore[method-assign]
        batch = await client.batches.create(
            input_file_id=name, endpoint=CHAT, completion_window="24h"
        )
    await control.stop()
    control = control_plane(tmp_path, settings=SETTINGS)
    await control.start()
    async with client_of(control.url) as client:
        running = await reaches(client, batch.id, "in_progress")
        assert running.request_counts is not None
        assert running.request_counts.to_dict() == {"total": 2, "completed": 0, "failed": 1}
        await client.batches.cancel(batch.id)
        cancelled = await reaches(client, batch.id, "cancelled")
        errors = await lines_of(client, cancelled.error_file_id)
        assert [e["custom_id"] for e in errors] == [None, "a"]
        assert errors[1]["error"]["code"] == "batch_cancelled"
    await control.stop()


async def test_namespaces_are_projects(fabric: Fabric, client: AsyncOpenAI) -> None:
    name = await uploaded(client, [line("a")])
    async with client_of(fabric.control.url, "team-b") as other:
        assert [f.id async for f in other.files.list()] == []
        with pytest.raises(NotFoundError):
            await other.files.retrieve(name)
    async with ClientSession() as http:
        url = f"{fabric.control.url}/openai/v1/files"
        headers = {"Authorization": "Bearer api-token", "OpenAI-Project": "NO"}
        async with http.get(url, headers=headers) as response:
            assert response.status == 400
            assert "not a namespace" in (await response.json())["error"]["message"]


async def test_a_damaged_record_of_a_batch_stops_neither_the_leader_nor_other_batches(
    tmp_path: Path,
) -> None:
    control = control_plane(tmp_path, settings=SETTINGS)
    await control.start()
    records = control.services.store.records
    await records.write("openai/batches/team-a/batch_0", b"{")
    await control.stop()
    control = control_plane(tmp_path, settings=SETTINGS)
    await control.start()
    async with client_of(control.url) as client:
        batch = await created(client, [line("a")])
        await reaches(client, batch.id, "in_progress")
    await control.stop()


async def test_a_collection_keeps_files_until_they_are_deleted(
    fabric: Fabric, client: AsyncOpenAI
) -> None:
    name = await uploaded(client, [line("a")])
    services = fabric.control.services
    record = await services.openai.files.records.read("team-a", name)
    live = await services.cache.live()
    assert record.blob in live[record.scope]
    await client.files.delete(name)
    live = await services.cache.live()
    assert record.blob not in live.get(record.scope, set())


async def test_a_limit_of_thousands_of_digits_is_refused(client: AsyncOpenAI) -> None:
    for limit in ("0", "-1", "9" * 5000):
        with pytest.raises(BadRequestError, match="expected an integer"):
            await client.get(f"/batches?limit={limit}", cast_to=object)
