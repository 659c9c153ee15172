"""Fixtures: every backend of the store; S3 is a real server and marked slow."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import versitygw
from backends import Backend, age_in, age_memory, rewrite_in, rewrite_memory

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


@pytest.fixture(params=["memory", "filesystem", pytest.param("s3", marks=pytest.mark.slow)])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
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
    url, root = server.url(tmp_path.name), server.directory / versitygw.BUCKET / tmp_path.name
    opened: list[Store] = []

    def reopen() -> Store:
        opened.append(open_store(url, spool_dir=tmp_path))
        return opened[-1]

    yield Backend("s3", reopen(), rewrite_in(root), age_in(root), reopen)
    for store in opened:
        store.close()
