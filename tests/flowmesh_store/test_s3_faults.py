"""What can go wrong on the way to a bucket: lost answers, refusals, abandoned uploads."""

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import boto3
import pytest
import versitygw
from obstore.auth.boto3 import Boto3CredentialProvider
from tests.blob_views import blobs_of

from flowmesh_core.errors import ConditionFailedError, StoreError, StoreUnavailableError
from flowmesh_store.conditional_write_check import prove_conditional_writes
from flowmesh_store.hashing import digest_of
from flowmesh_store.store import Store, open_store

if TYPE_CHECKING:
    from obstore.store import S3Credential

pytestmark = pytest.mark.slow

ASKED_AGAIN_AFTER_S = 0.1
"""obstore asks no sooner for new credentials, however soon it takes the last to expire."""


@asynccontextmanager
async def losing_first_answer(endpoint: str, method: bytes) -> AsyncIterator[str]:
    """A relay to the server that swallows the first answer to this method, after it took effect."""
    lost = asyncio.Event()
    upstream = urlsplit(endpoint)
    relays: set[asyncio.Task[None]] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        relays.add(task)
        to_server, from_server = await asyncio.open_connection(upstream.hostname, upstream.port)
        answers, requests = to_server, from_server
        doomed = False

        async def forward() -> None:
            nonlocal doomed
            while data := await reader.read(1 << 16):
                doomed = doomed or (data.startswith(method) and not lost.is_set())
                requests.write(data)
                await requests.drain()

        forwarding = asyncio.create_task(forward())
        try:
            while data := await answers.read(1 << 16):
                if doomed and not data.startswith(b"HTTP/1.1 100"):
                    lost.set()
                    break
                writer.write(data)
                await writer.drain()
        finally:
            forwarding.cancel()
            for end in (writer, requests):
                end.close()

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
        assert lost.is_set()
    finally:
        server.close()
        for task in relays:
            task.cancel()
        await asyncio.wait(relays)


@dataclass
class Cut:
    """The next answers to GET lose the end of their body, as often as ``times`` says."""

    to_bytes: int
    honest_length: bool
    times: int

    def of(self, answer: bytes) -> bytes:
        head, _, body = answer.partition(b"\r\n\r\n")
        if not self.times or not re.match(rb"HTTP/1.1 20[06]", head):
            return answer
        self.times -= 1
        if b" 206 " in head:  # of the rest, asked for after a cut, nothing comes
            body = b""
        if self.honest_length:
            length = f"Content-Length: {self.to_bytes}".encode()
            head = re.sub(rb"(?i)content-length: \d+", length, head)
        return head + b"\r\n\r\n" + body[: self.to_bytes]


@dataclass
class Broken:
    """The connections of the next uploads break in the middle of their body."""

    times: int


@asynccontextmanager
async def proxy(
    endpoint: str, *, sends: int = 1, cut: Cut | None = None, broken: Broken | None = None
) -> AsyncIterator[str]:
    """A proxy that sends each PUT so often and passes the last answer on, or cuts answers short.

    It may break connections in the middle of an upload, too.
    """
    upstream = urlsplit(endpoint)

    async def send(request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(upstream.hostname, upstream.port)
        writer.write(request)
        await writer.drain()
        answer = await reader.read()
        writer.close()
        return answer

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if broken is not None and broken.times and head.startswith(b"PUT") and length:
            broken.times -= 1
            await reader.readexactly(int(length[1]) // 2)
            writer.transport.abort()
            return
        body = await reader.readexactly(int(length[1])) if length else b""
        # Each connection has one request: the server ends it, so an answer ends where it closes.
        request = head[:-2] + b"Connection: close\r\n\r\n" + body
        for _ in range(sends if head.startswith(b"PUT") else 1):
            answer = await send(request)
        if cut is not None and head.startswith(b"GET"):
            answer = cut.of(answer)
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.mark.parametrize("replacing", [False, True])
async def test_a_write_whose_response_was_lost_is_recognised_as_the_clients_own(
    s3_server: versitygw.S3Server, tmp_path: Path, replacing: bool
) -> None:
    direct = open_store(s3_server.url(tmp_path.name))
    etag = await direct.records.write("epochs/1", b"0") if replacing else None
    async with losing_first_answer(s3_server.endpoint, b"PUT") as endpoint:
        store = open_store(s3_server.url(tmp_path.name).replace(s3_server.endpoint, endpoint))
        written = await store.records.write("epochs/1", b"mine", if_match=etag)
        store.close()
    record = await direct.records.read("epochs/1")
    assert record is not None
    assert (record.data, record.etag) == (b"mine", written)
    with pytest.raises(ConditionFailedError):
        await direct.records.write("epochs/1", b"theirs", if_match=etag)
    direct.close()


@pytest.mark.parametrize("replacing", [False, True])
async def test_a_write_that_a_proxy_sends_twice_is_recognised_as_the_clients_own(
    s3_server: versitygw.S3Server, tmp_path: Path, replacing: bool
) -> None:
    direct = open_store(s3_server.url(tmp_path.name))
    etag = await direct.records.write("runs/u/spec", b"0") if replacing else None
    async with proxy(s3_server.endpoint, sends=2) as endpoint:
        store = open_store(s3_server.url(tmp_path.name).replace(s3_server.endpoint, endpoint))
        written = await store.records.write("runs/u/spec", b"mine", if_match=etag)
        with pytest.raises(ConditionFailedError):
            await store.records.write("runs/u/spec", b"theirs", if_match=etag)
        store.close()
    record = await direct.records.read("runs/u/spec")
    assert record is not None
    assert (record.data, record.etag) == (b"mine", written)
    direct.close()


@pytest.mark.parametrize(("cut_to_bytes", "honest_length"), [(5, False), (0, False), (0, True)])
async def test_a_truncated_record_is_requested_again(
    s3_server: versitygw.S3Server, tmp_path: Path, cut_to_bytes: int, honest_length: bool
) -> None:
    direct = open_store(s3_server.url(tmp_path.name))
    await direct.records.write("runs/u/spec", b"whole record")
    await prove_conditional_writes(direct.records)
    cut = Cut(cut_to_bytes, honest_length=honest_length, times=2)
    async with proxy(s3_server.endpoint, cut=cut) as endpoint:
        store = open_store(s3_server.url(tmp_path.name).replace(s3_server.endpoint, endpoint))
        record = await store.records.read("runs/u/spec")
        assert record is not None
        assert record.data == b"whole record"
        assert cut.times < 2  # obstore itself asks for the rest of what began
        cut.times = 1_000
        with pytest.raises(StoreUnavailableError, match="runs/u/spec"):
            await store.records.read("runs/u/spec")
        with pytest.raises(StoreUnavailableError, match="proof/"):
            await prove_conditional_writes(store.records)  # what every start begins with
        store.close()
    direct.close()


@pytest.mark.parametrize("kind", ["blob", "record"])
async def test_an_upload_whose_connection_breaks_is_sent_again(
    s3_server: versitygw.S3Server, tmp_path: Path, kind: str
) -> None:
    async def write(store: Store, data: bytes) -> object:
        if kind == "blob":
            return await blobs_of(store).put(digest_of(data), data)
        return await store.records.write(f"runs/{digest_of(data)}/spec", data)

    async def stored(data: bytes) -> bool:
        if kind == "blob":
            return not await blobs_of(direct).missing([digest_of(data)])
        record = await direct.records.read(f"runs/{digest_of(data)}/spec")
        return record is not None and record.data == data

    data, broken = b"content" * 10_000, Broken(times=3)
    direct = open_store(s3_server.url(tmp_path.name))
    async with proxy(s3_server.endpoint, broken=broken) as endpoint:
        store = open_store(s3_server.url(tmp_path.name).replace(s3_server.endpoint, endpoint))
        await write(store, data)
        assert broken.times == 0
        assert await stored(data)
        broken.times = 1_000
        with pytest.raises(StoreUnavailableError):
            await write(store, b"other")
        assert not await stored(b"other")
        store.close()
    direct.close()


async def test_an_empty_record_is_not_a_truncated_one(
    s3_server: versitygw.S3Server, tmp_path: Path
) -> None:
    store = open_store(s3_server.url(tmp_path.name))
    etag = await store.records.write("runs/u/logs", b"")
    record = await store.records.read("runs/u/logs")
    assert record is not None
    assert (record.data, record.etag) == (b"", etag)
    store.close()


async def test_a_request_that_the_server_does_not_understand_is_not_tried_for_ever() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    store = open_store(f"s3://b/p?endpoint=http://127.0.0.1:{port}&region=us-east-1")
    with pytest.raises(StoreError, match="400 Bad Request") as caught:
        await store.records.read("epochs/1")
    assert not isinstance(caught.value, StoreUnavailableError)
    store.close()
    server.close()


async def test_an_unreachable_server_is_unavailable_and_retryable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"s3://b/p?endpoint=http://127.0.0.1:{unused.getsockname()[1]}&region=us-east-1"
        store = open_store(url)
        with pytest.raises(StoreUnavailableError, match="check the endpoint"):
            await store.records.read("epochs/1")
        with pytest.raises(StoreUnavailableError, match="check the endpoint"):
            await blobs_of(store).get(digest_of(b"x"))
        store.close()


async def test_a_missing_bucket_is_named(s3_server: versitygw.S3Server) -> None:
    store = open_store(s3_server.url().replace("/fabric/", "/nowhere/"))
    with pytest.raises(StoreError, match="no such bucket"):
        await store.records.read("epochs/1")
    with pytest.raises(StoreError, match="no such bucket"):
        await store.records.write("epochs/1", b"")
    with pytest.raises(StoreError, match="no such bucket"):
        await blobs_of(store).put(digest_of(b"x"), b"x")
    with pytest.raises(StoreError, match="no such bucket"):
        await blobs_of(store).get(digest_of(b"x"))
    store.close()


async def test_wrong_credentials_are_reported_as_such(
    s3_server: versitygw.S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    store = open_store(s3_server.url())
    with pytest.raises(StoreError, match="check the credentials"):
        await store.records.read("epochs/1")
    with pytest.raises(StoreError, match="check the credentials"):
        await blobs_of(store).get(digest_of(b"x"))
    store.close()


def test_without_credentials_a_bucket_is_refused_before_use(
    s3_server: versitygw.S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    with pytest.raises(StoreError, match="no AWS credentials"):
        open_store(s3_server.url())


async def test_requests_within_minutes_share_the_credentials_of_the_first(
    s3_server: versitygw.S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[S3Credential] = []
    real = Boto3CredentialProvider.__call__

    def noted(provider: Boto3CredentialProvider) -> "S3Credential":
        given.append(real(provider))
        return given[-1]

    monkeypatch.setattr(Boto3CredentialProvider, "__call__", noted)
    store = open_store(s3_server.url())
    began = time.monotonic()
    while time.monotonic() < began + 5 * ASKED_AGAIN_AFTER_S:
        assert await store.records.read("epochs/0") is None
    store.close()
    assert len(given) == 1


async def test_uncompleted_uploads_are_aborted_by_a_collection(
    s3_server: versitygw.S3Server, tmp_path: Path
) -> None:
    client = boto3.client("s3", endpoint_url=s3_server.endpoint, region_name="us-east-1")
    key = f"{tmp_path.name}/cas/ns-a/00/{'0' * 64}"
    upload = client.create_multipart_upload(Bucket=versitygw.BUCKET, Key=key)["UploadId"]
    client.upload_part(
        Bucket=versitygw.BUCKET, Key=key, UploadId=upload, PartNumber=1, Body=b"half"
    )
    store = open_store(s3_server.url(tmp_path.name))
    sweep = store.sweepable_blobs
    assert await sweep.discard_unfinished(older_than_s=3600) == 0
    assert await sweep.discard_unfinished(older_than_s=-3600) == 1
    assert await sweep.discard_unfinished(older_than_s=-3600) == 0
    assert [blob async for blob in sweep.blobs()] == []
    client.close()
    store.close()


async def test_a_stray_object_among_the_blobs_does_not_stop_a_collection_and_is_named(
    s3_server: versitygw.S3Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(s3_server.url(tmp_path.name))
    await blobs_of(store).put(digest_of(b"ours"), b"ours")
    client = boto3.client("s3", endpoint_url=s3_server.endpoint, region_name="us-east-1")
    client.put_object(Bucket=versitygw.BUCKET, Key=f"{tmp_path.name}/cas/notes.txt", Body=b"x")
    client.close()
    found = [blob.digest async for blob in store.sweepable_blobs.blobs()]
    assert found == [digest_of(b"ours")]
    assert [r.levelname for r in caplog.records if "cas/notes.txt" in r.message] == ["WARNING"]
    store.close()
