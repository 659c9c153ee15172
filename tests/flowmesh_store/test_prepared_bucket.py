"""A bucket made ready on a real server with accounts: workers reach content and nothing else."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
import versitygw
from botocore.exceptions import ClientError
from tests.blob_views import blobs_of

from flowmesh_core.errors import StoreError, StoreUnavailableError
from flowmesh_store.hashing import digest_of
from flowmesh_store.s3.prepare import main, prepare
from flowmesh_store.store import open_store

pytestmark = pytest.mark.slow

WORKER, WORKER_SECRET = "flowmesh-worker", "a-workers-secret"
ROW = b"content" * 1000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[versitygw.S3Server]:
    program = versitygw.binary()
    assert program is not None, "versitygw is missing: run `make bin/versitygw`"
    folder = tmp_path_factory.mktemp("accounts")
    accounts = folder / "iam"
    accounts.mkdir()
    account = {"access": WORKER, "secret": WORKER_SECRET, "role": "user"}
    (accounts / "users.json").write_text(json.dumps({"accessAccounts": {WORKER: account}}))
    (accounts / "users.json").chmod(0o444)  # as a Secret is mounted
    accounts.chmod(0o555)
    before = dict(os.environ)
    versitygw.set_credentials(os.environ)
    with versitygw.running(program, folder, "--iam-dir", str(accounts), bucket=False) as running:
        yield running
    accounts.chmod(0o755)
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def prepared(server: versitygw.S3Server) -> str:
    url = server.url("fabric")
    prepare(url, workers=WORKER)
    prepare(url, workers=WORKER)  # as every start of the operator does
    return url


async def test_a_worker_puts_and_reads_content(
    prepared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_worker(monkeypatch)
    store = open_store(prepared, spool_dir=tmp_path)
    digest = digest_of(ROW)
    assert await blobs_of(store).missing([digest]) == {digest}
    await blobs_of(store).put(digest, ROW)
    assert await blobs_of(store).get(digest) == ROW
    store.close()


async def test_a_worker_puts_content_that_goes_in_parts(
    prepared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_worker(monkeypatch)
    store = open_store(prepared, spool_dir=tmp_path)
    data = os.urandom(20 << 20)
    await blobs_of(store).put(digest_of(data), data)
    assert await blobs_of(store).get(digest_of(data)) == data
    store.close()


@pytest.mark.parametrize("key", ["actions/ns/team/x", "runs/u/spec", "epochs/1", "lineage/x"])
def test_a_worker_neither_reads_nor_writes_records(
    prepared: str, server: versitygw.S3Server, key: str
) -> None:
    name = f"fabric/{key}"
    client(server, versitygw.ACCESS_KEY, versitygw.SECRET_KEY).put_object(
        Bucket=versitygw.BUCKET, Key=name, Body=b"{}"
    )
    worker = client(server, WORKER, WORKER_SECRET)
    for call in (
        lambda: worker.get_object(Bucket=versitygw.BUCKET, Key=name),
        lambda: worker.put_object(Bucket=versitygw.BUCKET, Key=name, Body=b"mine"),
        lambda: worker.delete_object(Bucket=versitygw.BUCKET, Key=name),
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            call()


def test_a_worker_neither_lists_nor_deletes(prepared: str, server: versitygw.S3Server) -> None:
    key = "fabric/cas/00/x"
    worker = client(server, WORKER, WORKER_SECRET)
    worker.put_object(Bucket=versitygw.BUCKET, Key=key, Body=b"x")
    for call in (
        lambda: worker.list_objects_v2(Bucket=versitygw.BUCKET),
        lambda: worker.delete_object(Bucket=versitygw.BUCKET, Key=key),
        lambda: worker.put_bucket_policy(Bucket=versitygw.BUCKET, Policy="{}"),
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            call()


def test_who_does_not_own_the_bucket_is_told_so(
    prepared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_worker(monkeypatch)
    with pytest.raises(StoreError, match="credentials of the bucket's owner"):
        prepare(prepared, workers=WORKER)


def test_a_server_that_never_answers_is_named(
    server: versitygw.S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "s3://fabric/x?endpoint=http://127.0.0.1:9&region=us-east-1"
    with pytest.raises(StoreUnavailableError, match="did not answer within 0 s"):
        prepare(url, within_s=0)
    assert main([url, "--within", "0"]) == 1
    assert "look at the server's pod" in capsys.readouterr().err


def as_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", WORKER)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", WORKER_SECRET)


def client(server: versitygw.S3Server, access: str, secret: str):  # type: ignore[no-untyped-def]
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=access,
        aws_secret_access_key=secret,
    )
