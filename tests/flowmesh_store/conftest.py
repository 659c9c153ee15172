"""Fixtures: every backend of the store; S3 is a real server and marked slow."""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import versitygw
from backends import Backend, ServedStore, age_in, age_memory, rewrite_in, rewrite_memory
from tests.served_bucket import served_in_thread

from flowmesh_store.blob_service.views import open_blob_service
from flowmesh_store.store import Store, open_store


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[versitygw.S3Server]:
    program = versitygw.binary()
    if program is None:
        pytest.fail(
            "versitygw is missing: run `make bin/versitygw`, or name one in FLOWMESH_VERSITYGW"
        )
    before = dict(os.environ)
    versitygw.set_credentials(os.environ)
    with versitygw.running(program, tmp_path_factory.mktemp("versitygw")) as server:
        yield server
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def served_bucket(s3_server: versitygw.S3Server) -> Iterator[tuple[str, Store]]:
    """A blob service for one prefix, in a thread, since each test has its own loop; its store."""
    store = open_store(s3_server.url("served"))
    with served_in_thread(s3_server.url("served")) as url:
        yield url, store
    store.close()


@pytest.fixture(params=["memory", "filesystem", pytest.param("s3", marks=pytest.mark.slow)])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    if request.param == "memory":
        store = open_store("memory:", spool_dir=tmp_path)
        yield Backend("memory", store, rewrite_memory(store), age_memory(store), lambda: store)
        return
    if request.param == "filesystem":
        root = tmp_path / "store"
        store = open_store(root)
        yield Backend("filesystem", store, rewrite_in(root), age_in(root), lambda: open_store(root))
        return
    server: versitygw.S3Server = request.getfixturevalue("s3_server")
    if request.param == "blob-service":
        service, store = request.getfixturevalue("served_bucket")
        root = server.directory / versitygw.BUCKET / "served"
        async with open_blob_service(service, spool_dir=tmp_path) as views:
            shown = cast(Store, ServedStore(store, views))
            yield Backend("blob-service", shown, rewrite_in(root), age_in(root), lambda: shown)
        return
    url, root = server.url(tmp_path.name), server.directory / versitygw.BUCKET / tmp_path.name
    opened: list[Store] = []

    def reopen() -> Store:
        opened.append(open_store(url, spool_dir=tmp_path))
        return opened[-1]

    yield Backend("s3", reopen(), rewrite_in(root), age_in(root), reopen)
    for store in opened:
        store.close()
