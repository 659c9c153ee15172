"""Fetches a data set that an engine of a service keeps loaded; called by the component cache."""

import asyncio
import os
import shutil
from pathlib import Path
from typing import Protocol

from flowmesh_core.dataset import Manifest, decode_manifest_of
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest
from flowmesh_store.atomic_files import temporary_name
from flowmesh_store.os_errors import store_error
from flowmesh_store.ports import BlobFiles, BlobStore
from flowmesh_worker.engines.resident_dataset import MANIFEST, chunk_name

DATASET = "dataset"
_CHUNKS_AT_ONCE = 8


class DatasetBlobs(BlobStore, BlobFiles, Protocol):
    """Port of :func:`fetch_dataset`."""


async def read_manifest(blobs: BlobStore, artifact: Artifact) -> Manifest:
    """Reads the manifest of a data set.

    Raises:
        IdentityMismatchError: it is that of another one.
        StoreError: it cannot be read.
    """
    return decode_manifest_of(await blobs.get(artifact.blob), artifact.digest, artifact.blob)


async def fetch_dataset(blobs: DatasetBlobs, artifact: Artifact, target: Path) -> int:
    """Writes a data set to a folder, which appears complete or not at all.

    Args:
        blobs: has the content; every file is verified while it is written.
        artifact: the data set.
        target: must not exist.

    Returns:
        The bytes of its chunks.

    Raises:
        IdentityMismatchError: the manifest is that of another data set.
        StoreError: as for ``fetch_tree``.
    """
    data = await blobs.get(artifact.blob)
    manifest = decode_manifest_of(data, artifact.digest, artifact.blob)
    partial = target.with_name(temporary_name(f".{target.name}-"))
    limit = asyncio.Semaphore(_CHUNKS_AT_ONCE)

    async def fetch(number: int, chunk: Digest) -> None:
        async with limit:
            await blobs.fetch(chunk, partial / chunk_name(number))

    try:
        partial.mkdir(parents=True)
        (partial / MANIFEST).write_bytes(data)
        async with asyncio.TaskGroup() as group:
            for number, chunk in enumerate(manifest.chunks):
                group.create_task(fetch(number, chunk.blob))
        # The last step, with no await after it: a cancellation would leave the target unreported.
        os.rename(partial, target)
    except BaseException as error:
        await asyncio.to_thread(shutil.rmtree, partial, ignore_errors=True)
        if isinstance(error, ExceptionGroup):
            raise error.exceptions[0] from error
        if isinstance(error, OSError):
            raise store_error(error, str(target)) from error
        raise
    return manifest.blob_bytes
