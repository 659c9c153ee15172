"""The stores under test, each with a way to damage it behind its back."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.blob_views import SCOPE
from tests.served_bucket import attempt_token

from flowmesh_core.units import Digest
from flowmesh_store.blob_service.views import BlobServiceViews
from flowmesh_store.blobs import BlobView
from flowmesh_store.filesystem.record_log import RecordLog
from flowmesh_store.filesystem.root import StoreRoot
from flowmesh_store.keys import ACTIONS
from flowmesh_store.memory import MemoryContent
from flowmesh_store.store import Store


@dataclass
class Backend:
    """A store, and its blobs as raw bytes: ``rewrite(digest, None)`` loses one."""

    name: str
    store: Store
    rewrite: Callable[[str, bytes | None], None]
    age: Callable[[str, float], None]
    reopen: Callable[..., Store]


@dataclass
class ServedStore:
    """A store whose blobs are read and put as by a worker: through the blob service."""

    store: Store
    views: BlobServiceViews

    def view(self, *, write: str, read: Sequence[str]) -> BlobView:
        token = attempt_token(write, tuple(read))
        return self.views.view(write=write, read=read, token=token)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


def rewrite_in(directory: Path) -> Callable[[str, bytes | None], None]:
    def rewrite(digest: str, content: bytes | None) -> None:
        path = directory / "cas" / SCOPE / digest[:2] / digest
        if content is None:
            path.unlink()
        else:
            with path.open("r+b") as file:
                file.truncate(0)
                file.write(content)

    return rewrite


def age_in(directory: Path) -> Callable[[str, float], None]:
    def age(key: str, seconds: float) -> None:
        if key.startswith(ACTIONS) and (directory / ACTIONS / "log").exists():
            log = RecordLog(StoreRoot(directory), ACTIONS, clock=lambda: time.time() - seconds)
            record = log.read(key)
            assert record is not None
            assert log.write(key, record.data, if_match=record.etag, durable=False)
            return
        path = directory / (key if "/" in key else f"cas/{SCOPE}/{key[:2]}/{key}")
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))

    return age


def rewrite_memory(store: Store) -> Callable[[str, bytes | None], None]:
    content = store.sweepable_blobs
    assert isinstance(content, MemoryContent)
    held = content.stored

    def rewrite(digest: str, data: bytes | None) -> None:
        if data is None:
            del held[SCOPE, Digest(digest)]
        else:
            held[SCOPE, Digest(digest)] = (data, held[SCOPE, Digest(digest)][1])

    return rewrite


def age_memory(store: Store) -> Callable[[str, float], None]:
    def age(key: str, seconds: float) -> None:
        blobs, records = store.sweepable_blobs.stored, store.sweepable_records._records  # type: ignore[attr-defined]
        for half, place in ((blobs, (SCOPE, key)), (records, key)):
            if place in half:
                half[place] = (half[place][0], half[place][1] - seconds)

    return age
