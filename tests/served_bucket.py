"""A bucket on a real S3 server, and a blob service for it in this process."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.blob_views import SCOPE
from tests.flowmesh_control.fabric import KEY
from tests.flowmesh_store import versitygw

from flowmesh_control.blob_service.service import BlobServiceSettings, running_blob_service
from flowmesh_core.protocol.attempt_tokens import CONTEXT, AttemptTokens, TokenHolder
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_store.blob_service.views import BlobServiceViews, open_blob_service

HOLDER = TokenHolder("good", "good-w1", "process of w1")


@contextlib.contextmanager
def s3_server(directory: Path) -> Iterator[versitygw.S3Server]:
    """Runs a server whose owner's credentials are those of this process's environment."""
    program = versitygw.binary()
    if program is None:
        pytest.fail("versitygw is missing: run `make bin/versitygw`")
    before = dict(os.environ)
    versitygw.set_credentials(os.environ)
    try:
        with versitygw.running(program, directory) as server:
            yield server
    finally:
        os.environ.clear()
        os.environ.update(before)


def attempt_token(
    write: str = SCOPE, read: tuple[str, ...] = (SCOPE,), *, age_s: float = 0.0, ring: KeyRing = KEY
) -> str:
    """Returns the token of an attempt that was assigned a while ago."""
    tokens, issued_s = AttemptTokens(ring.derive(CONTEXT)), time.time() - age_s
    return tokens.issue(f"{write}/a/1", HOLDER, generation=1, read_scopes=read, issued_s=issued_s)


@dataclass(frozen=True)
class ServedBucket:
    """The service's address, and the views that it gives a worker."""

    url: str
    views: BlobServiceViews


@asynccontextmanager
async def served(
    store_url: str, spool_dir: Path, ring: KeyRing = KEY
) -> AsyncIterator[ServedBucket]:
    """Yields a blob service on a bucket."""
    async with (
        running_blob_service(BlobServiceSettings(store_url, ring)) as url,
        open_blob_service(url, spool_dir=spool_dir) as views,
    ):
        yield ServedBucket(url, views)


@contextlib.contextmanager
def served_in_thread(store_url: str, ring: KeyRing = KEY) -> Iterator[str]:
    """Yields the address of a blob service that other event loops use too."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    service = running_blob_service(BlobServiceSettings(store_url, ring))
    try:
        yield asyncio.run_coroutine_threadsafe(service.__aenter__(), loop).result(60)
        asyncio.run_coroutine_threadsafe(service.__aexit__(None, None, None), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
