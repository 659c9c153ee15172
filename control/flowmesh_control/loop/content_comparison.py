"""Compares a worker's result with the identities that it reported, where a reader says they differ.

The command executor calls it before it counts a mismatch against the worker, since the reader is a
worker too and may be wrong, or lie.
"""

import asyncio
import logging
from collections.abc import Mapping

from flowmesh_core.dataset import ChunkRef, Schema, decode_manifest_of
from flowmesh_core.errors import IdentityMismatchError, LostBlobError, StoreUnavailableError
from flowmesh_core.machine.commands import CompareContent
from flowmesh_core.protocol.results import Artifact, require_identity
from flowmesh_core.units import Digest
from flowmesh_store.blobs import BlobViews
from flowmesh_store.ports import BlobStore
from flowmesh_store.tree import read_tree_of

log = logging.getLogger("flowmesh.control")

DECODED_BYTES_MAX = 256 << 20
"""A chunk that decodes to more is not compared."""
_VALUE_BYTES = 200
"""About what a value takes in Python, however few bytes it has in the file."""


class ContentComparison:
    """Compares one result at a time, so that little is in memory."""

    def __init__(self, store: BlobViews) -> None:
        self._store = store
        self._lock = asyncio.Lock()

    async def mismatch(self, command: CompareContent) -> str:
        """Returns how a result differs from its identities; empty where it does not.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        result, scopes = command.result, command.scopes
        content = _Content(self._store.view(write=scopes[0], read=scopes), result.inline)
        async with self._lock:
            for port, artifact in result.outputs.items():
                if not command.blobs.isdisjoint(artifact.blobs()):
                    try:
                        await content.compare(artifact, command.blobs)
                    except IdentityMismatchError as e:
                        return f"output {port!r} of {result.provenance.attempt_id}: {e.message}"
                    except LostBlobError:
                        continue  # what is gone shows nothing
                    except StoreUnavailableError:
                        raise
                    except Exception:  # a worker wrote the content: it must not end this process
                        log.exception("output %r of %s", port, result.provenance.attempt_id)
        return ""


class _Content:
    """The content of one result, as the run that needs it reads it."""

    def __init__(self, blobs: BlobStore, inline: Mapping[Digest, bytes]) -> None:
        self._blobs = blobs
        self._inline = inline

    async def compare(self, artifact: Artifact, blobs: frozenset[Digest]) -> None:
        """Compares an output; of a data set the chunks with these blobs.

        Raises:
            IdentityMismatchError: it is not what its identity says.
            LostBlobError, StoreUnavailableError: it cannot be read.
        """
        if artifact.kind in ("model", "adapter"):
            await read_tree_of(self._blobs, artifact.blob, artifact.kind, artifact.digest)
        elif artifact.kind != "dataset":
            require_identity(artifact)
        else:
            manifest = artifact.manifest
            if manifest is None:
                data = await self._read(artifact.blob)
                manifest = decode_manifest_of(data, artifact.digest, artifact.blob)
            for chunk in manifest.chunks:
                if chunk.blob in blobs:
                    data = await self._read(chunk.blob)
                    await asyncio.to_thread(compare_rows, data, manifest.schema, chunk)

    async def _read(self, blob: Digest) -> bytes:
        data = self._inline.get(blob)
        return await self._blobs.get(blob) if data is None else data


def compare_rows(data: bytes, schema: Schema, chunk: ChunkRef) -> None:
    """Compares a chunk, unless it decodes to more than the control plane has memory for.

    Raises:
        IdentityMismatchError: it has other rows.
    """
    # Imported here: pyarrow is heavy, and hardly any control plane comes here.
    from flowmesh_store.datasets import read_verified_table  # noqa: PLC0415
    from flowmesh_store.datasets.parquet import decoded_sizes  # noqa: PLC0415

    values = chunk.count * len(schema.columns)
    try:
        sizes = decoded_sizes(data, chunk.count if schema.columns else None)
        if any(size + values * _VALUE_BYTES > DECODED_BYTES_MAX for size in sizes):
            return
    except LostBlobError as e:
        raise IdentityMismatchError(e.message, chunk.blob) from e
    read_verified_table(data, schema, chunk)
