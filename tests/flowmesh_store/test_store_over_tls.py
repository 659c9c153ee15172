"""A bucket whose server has a certificate of a private authority, for its owner and for workers."""

import datetime
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import versitygw
from tests.blob_views import SCOPE, blobs_of
from tests.flowmesh_control.fabric import KEY
from tests.served_bucket import attempt_token

from flowmesh_control.blob_service.service import BlobServiceSettings, running_blob_service
from flowmesh_core.errors import StoreAccessError, StoreError, StoreUnavailableError
from flowmesh_operator.access.gateway_certificate import gateway_certificate
from flowmesh_store.blob_service.views import open_blob_service
from flowmesh_store.conditional_write_check import prove_conditional_writes
from flowmesh_store.hashing import digest_of
from flowmesh_store.reachability import look_at
from flowmesh_store.s3.prepare import prepare
from flowmesh_store.store import open_store

pytestmark = pytest.mark.slow

DATA = b"content" * 1000


def certificate(folder: Path) -> Path:
    folder.mkdir()
    made = gateway_certificate(["localhost"], 1, datetime.datetime.now(datetime.UTC))
    for name, content in made.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def tls_server(tmp_path: Path) -> Iterator[versitygw.S3Server]:
    program = versitygw.binary()
    if program is None:
        pytest.fail("versitygw is missing: run `make bin/versitygw`")
    before, made = dict(os.environ), certificate(tmp_path / "tls")
    versitygw.set_credentials(os.environ)
    try:
        with versitygw.running(program, tmp_path / "s3", certificate=made) as server:
            yield server
    finally:
        os.environ.clear()
        os.environ.update(before)


async def test_the_owner_trusts_the_authority_that_its_address_names(
    tls_server: versitygw.S3Server, tmp_path: Path
) -> None:
    url = f"{tls_server.url('p')}&ca={tmp_path / 'tls' / 'ca.crt'}"
    assert urlsplit(tls_server.endpoint).scheme == "https"
    prepare(url, within_s=10)
    store = open_store(url, spool_dir=tmp_path)
    await prove_conditional_writes(store.records)
    blobs = blobs_of(store)
    await blobs.put(digest_of(DATA), DATA)
    assert await blobs.get(digest_of(DATA)) == DATA
    await look_at(store)
    store.close()


async def test_a_worker_trusts_the_authority_that_it_is_given_and_no_other(
    tls_server: versitygw.S3Server, tmp_path: Path
) -> None:
    authority = tmp_path / "tls" / "ca.crt"
    url = f"{tls_server.url('p')}&ca={authority}"
    async with running_blob_service(BlobServiceSettings(url, KEY)) as service:
        async with open_blob_service(service, store_authority=authority) as views:
            await views.look()
            own = views.view(write=SCOPE, read=(SCOPE,), token=attempt_token())
            await own.put(digest_of(DATA), DATA)
            assert await own.get(digest_of(DATA)) == DATA
        other = certificate(tmp_path / "other") / "ca.crt"
        for wrong in (None, other):
            async with open_blob_service(service, store_authority=wrong) as views:
                with pytest.raises(StoreUnavailableError, match="is not trusted") as caught:
                    await views.look()
                assert "store.s3.caSecret" in caught.value.remedy


async def test_an_authority_that_does_not_fit_is_refused_with_a_remedy(
    tls_server: versitygw.S3Server, tmp_path: Path
) -> None:
    (tmp_path / "empty.crt").write_text("no certificate")
    for file in ("empty.crt", "absent.crt"):
        with pytest.raises(StoreAccessError, match="trusted certificates cannot be used"):
            open_store(f"{tls_server.url()}&ca={tmp_path / file}")
    other = certificate(tmp_path / "other") / "ca.crt"
    with pytest.raises(StoreError):
        async with running_blob_service(
            BlobServiceSettings(f"{tls_server.url('p')}&ca={other}", KEY)
        ):
            pass
