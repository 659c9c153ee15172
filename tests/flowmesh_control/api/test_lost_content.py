"""Errors about the store say what a user can do, and nothing of where the server has it."""

import asyncio
from pathlib import Path

import orjson
import pytest
from aiohttp import ClientPayloadError
from tests.attacks.by_hand import Place, noop, place
from tests.blob_views import blobs_of
from tests.flowmesh_control.derived_work import (
    ROWS,
    ask,
    submit,
    trainer,
    training,
    upload,
    upload_model,
)

from flowmesh_control.api.responses import error_response
from flowmesh_core.dataset import decode_manifest
from flowmesh_core.errors import (
    BlobNotFoundError,
    DamagedRecordError,
    FlowMeshError,
    StoreAccessError,
    StoreFullError,
    StoreUnavailableError,
)
from flowmesh_core.units import Digest


async def refused(there: Place, path: str) -> dict[str, str]:
    status, answer = await ask(there, "GET", path)
    assert status == 410, answer
    found: dict[str, str] = orjson.loads(answer)["error"]
    return found


def destroy(root: Path, kind: bytes) -> None:
    """Deletes the blobs of some content, and damages none."""
    gone = [f for f in (root / "cas").rglob("*") if f.is_file() and kind in f.read_bytes()]
    assert gone
    for file in gone:
        file.unlink()


def delete(root: Path, digest: str) -> None:
    (file,) = (f for f in (root / "cas").rglob("*") if f.name == digest)
    file.unlink()


async def test_a_lost_output_is_named_with_its_step_and_not_with_the_servers_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with place(store_url=f"file://{tmp_path}/store") as there:
        one = await trainer(there)
        rows, base = await upload(there, ROWS), await upload_model(there)
        spec = training(rows["reference"], base["reference"], "{{ text }}")
        uid = await submit(there, "tuned", spec)
        await one.answer((await one.worker.given())[0])
        await there.ended(uid)
        destroy(tmp_path / "store", b"weights of ")
        for name in ("model", "train.model"):
            error = await refused(there, f"/v1/runs/{uid}/outputs/{name}")
            assert error["message"] == f"{name!r} is no longer stored"
            assert error["where"] == f"runs/{uid}"
            assert "run the workflow again" in error["remedy"]
            assert "'train'" in error["remedy"]
            assert str(tmp_path) not in str(error)
        assert str(tmp_path) in caplog.text, "the administrator sees which file"


async def test_what_an_upload_lost_is_refused_at_its_first_part_and_broken_off_at_a_later_one(
    tmp_path: Path,
) -> None:
    async with place(store_url=f"file://{tmp_path}/store") as there:
        rows = b"".join(b'{"text":"row %d"}\n' % n for n in range(2_000))
        given = await upload(there, rows)
        blobs = blobs_of(there.store, "ns-team-a")
        digest = Digest(given["reference"].split(":")[2].split(".")[0])
        chunks = decode_manifest(await blobs.get(digest)).chunks
        path = f"/v1/content?namespace=team-a&reference={given['reference']}"
        assert await ask(there, "GET", path) == (200, rows)

        async with asyncio.timeout(30):
            delete(tmp_path / "store", chunks[-1].blob)
            with pytest.raises(ClientPayloadError):
                await ask(there, "GET", path)
            delete(tmp_path / "store", chunks[0].blob)
            error = await refused(there, path)
        assert error["message"] == "the content is no longer stored"
        assert "upload it again" in error["remedy"]


@pytest.mark.parametrize(
    "error",
    [
        BlobNotFoundError("there is no blob", where="/srv/flowmesh/cas/ns-a/ab/abcd"),
        StoreFullError("no space is left", where="/srv/flowmesh"),
        StoreAccessError("access was refused", where="s3://internal-bucket/prefix"),
        StoreUnavailableError(
            "Generic S3 error: Error performing GET http://10.1.2.3:9000/internal-bucket/x in 1s",
            where="s3://internal-bucket/prefix: runs/1/final",
            remedy="check '/srv/flowmesh' and https://minio.svc",
        ),
    ],
)
def test_where_the_store_is_stays_with_the_server(error: FlowMeshError) -> None:
    body = error_response(error).body
    assert isinstance(body, bytes)
    for secret in (b"/srv", b"internal-bucket", b"10.1.2.3", b"minio.svc"):
        assert secret not in body
    assert orjson.loads(body)["error"]["where"] == "store"


def test_the_key_of_a_damaged_record_is_shown() -> None:
    body = error_response(DamagedRecordError("runs/1/final", "cut off", remedy="restore it")).body
    assert isinstance(body, bytes)
    assert orjson.loads(body)["error"]["where"] == "runs/1/final"


async def test_an_internal_error_says_its_kind_and_the_log_has_the_rest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with place() as there:
        uid = await there.submit("one", noop())

        async def broken(_: str) -> None:
            raise FileNotFoundError(2, "No such file", "/srv/flowmesh/secret-place")

        monkeypatch.setattr(type(there.control.services.views), "status", lambda _, u: broken(u))
        status, answer = await ask(there, "GET", f"/v1/runs/{uid}")
        assert status == 500
        assert b"FileNotFoundError" in answer
        assert b"secret-place" not in answer
        assert "secret-place" in caplog.text
