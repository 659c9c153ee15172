"""What a worker does with the blob service: batches, URLs that ended, uploads that fail."""

import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any

import aiohttp
import boto3
import pytest
import versitygw
from tests.blob_views import SCOPE
from tests.served_bucket import attempt_token

from flowmesh_core.errors import (
    BlobCorruptError,
    BlobNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from flowmesh_core.protocol.blob_service import UrlRequest
from flowmesh_store.blob_service.access import SignedAccess
from flowmesh_store.blob_service.blobs import ServiceBlobs
from flowmesh_store.blob_service.client import BlobServiceClient
from flowmesh_store.blob_service.views import open_blob_service
from flowmesh_store.hashing import digest_of
from flowmesh_store.ordered_pieces import PIECE_BYTES
from flowmesh_store.s3.presigner import Presigner
from flowmesh_store.s3.signing_bucket import SigningBucket, open_signing_bucket
from flowmesh_store.signed_objects import SignedObjects, UrlRefusedError
from flowmesh_store.store import Store

pytestmark = pytest.mark.slow

MIB = 1 << 20


@pytest.fixture
def bucket(s3_server: versitygw.S3Server) -> SigningBucket:
    return open_signing_bucket(s3_server.url("served"))


class Worker:
    """A worker whose requests to the service are counted by path."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        service: str,
        requests: list[str],
        objects: type[SignedObjects] = SignedObjects,
    ) -> None:
        self.http = http
        self.service = service
        self.requests = requests
        self.access = SignedAccess(BlobServiceClient(http, service), objects(http))
        self.blobs = ServiceBlobs(self.access, SCOPE, attempt_token())


@pytest.fixture
async def worker(served_bucket: tuple[str, Store]) -> AsyncIterator[Worker]:
    requests: list[str] = []

    async def count(_: object, __: object, started: aiohttp.TraceRequestStartParams) -> None:
        requests.append(started.url.path)

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(count)
    async with aiohttp.ClientSession(trace_configs=[trace]) as http:
        yield Worker(http, served_bucket[0], requests)


async def test_urls_are_asked_for_in_batches(worker: Worker) -> None:
    digests = {digest_of(os.urandom(8)) for _ in range(400)}
    assert await worker.blobs.missing(digests) == digests
    assert worker.requests.count("/v1/urls") <= 40
    assert len(worker.requests) - worker.requests.count("/v1/urls") == 400


async def test_a_url_that_ended_is_asked_for_again_and_a_refusal_is_an_error(
    worker: Worker, bucket: SigningBucket
) -> None:
    digest = digest_of(b"content")
    await worker.blobs.put(digest, b"content")
    signer = bucket.urls.presigner
    past = Presigner(
        signer.address, signer.credentials, lambda: datetime.now(UTC) - timedelta(minutes=20)
    )
    old = past.url("HEAD", bucket.location.key(f"cas/{SCOPE}/{digest[:2]}/{digest}"))
    urls = [old]

    async def ask() -> str:
        if urls:
            return urls.pop()
        request = UrlRequest("HEAD", SCOPE, digest)
        return await worker.access.service.presigned_url(attempt_token(), request)

    assert await worker.access.use(ask, worker.access.objects.size) == 7
    urls[:] = [old, old]
    with pytest.raises(UrlRefusedError, match="was refused") as caught:
        await worker.access.use(ask, worker.access.objects.size)
    assert "Signature=" not in str(caught.value)


class WithoutRanges(SignedObjects):
    """As if the server knew no ranges: it sends whole objects."""

    def _request(self, method: str, url: str, **more: Any) -> Any:
        return super()._request(method, url, **{**more, "headers": {}})


class UrlThatEnds(SignedObjects):
    """Sends the first URL with a wrong signature once some pieces were read with it."""

    _uses = 0

    def _request(self, method: str, url: str, **more: Any) -> Any:
        self._uses += 1
        return super()._request(method, url + "0" if 2 <= self._uses <= 3 else url, **more)


@pytest.mark.parametrize("more_bytes", [-1, 0, 1, 27 * MIB + 5])
async def test_a_large_blob_is_read_in_pieces_with_one_url(
    worker: Worker, tmp_path: Path, more_bytes: int
) -> None:
    data = os.urandom(PIECE_BYTES + more_bytes)
    digest = digest_of(data)
    await worker.blobs.put(digest, data)
    worker.requests.clear()
    assert await worker.blobs.fetch(digest, tmp_path / "target") == len(data)
    assert (tmp_path / "target").read_bytes() == data
    assert worker.requests.count("/v1/urls") == 1
    assert len(worker.requests) == 1 + ceil(len(data) / PIECE_BYTES)


@pytest.mark.parametrize("objects", [WithoutRanges, UrlThatEnds])
async def test_a_large_blob_is_read_without_ranges_and_with_a_url_that_ends(
    worker: Worker, tmp_path: Path, objects: type[SignedObjects]
) -> None:
    data = os.urandom(3 * PIECE_BYTES + 5)
    digest = digest_of(data)
    await worker.blobs.put(digest, data)
    other = Worker(worker.http, worker.service, worker.requests, objects)
    assert await other.blobs.fetch(digest, tmp_path / "target") == len(data)
    assert (tmp_path / "target").read_bytes() == data


@pytest.mark.parametrize("found", [b"", b"other", bytes(3 * PIECE_BYTES)])
async def test_a_large_blob_of_other_content_leaves_no_file(
    worker: Worker,
    bucket: SigningBucket,
    s3_server: versitygw.S3Server,
    tmp_path: Path,
    found: bytes,
) -> None:
    digest = digest_of(os.urandom(8))
    owner = boto3.client("s3", endpoint_url=s3_server.endpoint, region_name="us-east-1")
    key = bucket.location.key(f"cas/{SCOPE}/{digest[:2]}/{digest}")
    owner.put_object(Bucket=versitygw.BUCKET, Key=key, Body=found)
    owner.close()
    with pytest.raises(BlobCorruptError if found else BlobNotFoundError):
        await worker.blobs.fetch(digest, tmp_path / "target")
    assert os.listdir(tmp_path) == []


async def test_an_empty_blob_is_read(worker: Worker, tmp_path: Path) -> None:
    await worker.blobs.put(digest_of(b""), b"")
    assert await worker.blobs.fetch(digest_of(b""), tmp_path / "target") == 0
    assert not (tmp_path / "target").read_bytes()


async def test_an_upload_of_other_content_is_given_up(
    worker: Worker, tmp_path: Path, s3_server: versitygw.S3Server
) -> None:
    (tmp_path / "file").write_bytes(bytes(40 * MIB))
    wrong = digest_of(b"other")
    with pytest.raises(BlobCorruptError):
        await worker.blobs.put(wrong, tmp_path / "file")
    assert worker.requests[-1] == "/v1/uploads/abort"
    assert await worker.blobs.missing([wrong]) == {wrong}
    owner = boto3.client("s3", endpoint_url=s3_server.endpoint, region_name="us-east-1")
    left = owner.list_multipart_uploads(Bucket=versitygw.BUCKET).get("Uploads", [])
    assert not [upload for upload in left if upload["Key"].endswith(wrong)]
    owner.close()


async def test_two_uploads_of_one_blob_leave_it_whole(worker: Worker, tmp_path: Path) -> None:
    data = os.urandom(33 * MIB)
    (tmp_path / "file").write_bytes(data)
    digest = digest_of(data)
    one = await worker.access.service.begin_upload(attempt_token(), digest, len(data))
    await worker.blobs.put(digest, tmp_path / "file")
    assert await worker.blobs.get(digest) == data
    etags = [
        await worker.access.objects.put(url, data[start : start + one.part_bytes])
        for url, start in zip(one.urls, range(0, len(data), one.part_bytes), strict=True)
    ]
    token = attempt_token()
    await worker.access.service.complete_upload(token, digest, one.upload_id, tuple(etags))
    again = await worker.access.service.begin_upload(token, digest, len(data))
    assert again.stored
    assert await worker.blobs.get(digest) == data


async def test_a_service_that_does_not_answer_is_unavailable_and_named(tmp_path: Path) -> None:
    async with open_blob_service("http://127.0.0.1:9", spool_dir=tmp_path) as views:
        own = views.view(write=SCOPE, read=(SCOPE,), token=attempt_token())
        with pytest.raises(StoreUnavailableError, match="blob service did not answer") as caught:
            await own.copy([digest_of(b"x")])
        assert "flowmesh-blobs" in caught.value.remedy
        with pytest.raises(StoreError, match="sent no token"):
            views.view(write=SCOPE, read=(SCOPE,))
