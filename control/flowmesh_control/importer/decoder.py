"""Decodes users' rows into data sets: small inputs in a thread, others in a separate process."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import msgspec

from flowmesh_control.evaluators.fair_places import FairPlaces, in_thread
from flowmesh_control.importer.concurrent_puts import ConcurrentPuts
from flowmesh_control.importer.frames import DatasetDecoded
from flowmesh_control.importer.process import Importer
from flowmesh_core.dataset import dataset_digest, encode_manifest
from flowmesh_core.errors import ContentLimitError
from flowmesh_core.identity import digest_bytes
from flowmesh_core.units import Digest
from flowmesh_store.blobs import BlobViews
from flowmesh_store.spool import SpooledFile

if TYPE_CHECKING:
    from flowmesh_store.datasets.decoding import Decoding

HERE_BYTES_MAX = 1 << 20
"""Rows up to this size are decoded in a thread, which is quicker than to start a process."""
THREADS = 2
"""How many inputs are decoded in threads at once; all tenants share the threads of the loop."""
_THREAD_BASE_BYTES = 1 << 20
"""What expands further takes seconds, and a thread shares its processor with the event loop."""
_BATCH_BYTES = 1 << 20
_INLINE_NAME = "rows.jsonl"
_encoder = msgspec.json.Encoder()


class UploadDecoder:
    """Decodes rows and files of rows, and stores each chunk as soon as it is decoded."""

    def __init__(self, store: BlobViews) -> None:
        self._store = store
        self._importer = Importer(store)
        self._threads = FairPlaces(THREADS)

    async def of_rows(self, rows: Sequence[Mapping[str, Any]], *, scope: str) -> DatasetDecoded:
        """Stores rows that are in memory in a scope; while others wait, it has one place.

        Raises:
            IdentityError: they have mixed types; names row and column.
            ContentLimitError: they are more than may be stored.
            StoreError: they could not be stored.
        """
        async with self._threads.place(scope):
            data = await in_thread(_lines, rows)
            if data is None or len(data) <= HERE_BYTES_MAX:
                try:
                    size = 0 if data is None else len(data)
                    decoding = await in_thread(_of_rows, rows, size)
                    return await self._decode_in_threads(decoding, scope)
                except ContentLimitError:
                    if data is None:
                        raise
        with self._store.view(write=scope, read=()).spool() as writer:
            await asyncio.to_thread(writer.write, data)
            file = await asyncio.to_thread(writer.finish)
        del data
        try:
            return await self._importer.decode(
                _INLINE_NAME, file.path, file.size_bytes, scope=scope
            )
        finally:
            file.discard()

    async def of_file(self, name: str, file: SpooledFile, *, scope: str) -> DatasetDecoded:
        """Stores a file of rows; raises as :meth:`of_rows`.

        Args:
            name: the user's file name; its suffix gives the format.
            file: the content; the caller removes it.
            scope: where it is stored.
        """
        # A page of Parquet may expand to gigabytes, whatever the size of the file.
        if file.size_bytes <= HERE_BYTES_MAX and PurePath(name).suffix.lower() != ".parquet":
            try:
                async with self._threads.place(scope):
                    decoding = await in_thread(_of_file, name, file.path, file.size_bytes)
                    return await self._decode_in_threads(decoding, scope)
            except ContentLimitError:
                pass  # The file is small and expands: the process finds out whether too much.
        return await self._importer.decode(name, file.path, file.size_bytes, scope=scope)

    async def _decode_in_threads(self, decoding: "Decoding", scope: str) -> DatasetDecoded:
        """Decodes in threads, so that the event loop is not blocked."""
        blobs = decoding.blobs()
        async with ConcurrentPuts(self._store.view(write=scope, read=(scope,))) as puts:
            while batch := await in_thread(_next, blobs):
                for digest, data in batch:
                    await puts.add(digest, data)
            manifest = decoding.manifest
            encoded = encode_manifest(manifest)
            blob = digest_bytes(encoded)
            await puts.add(blob, encoded)
        return DatasetDecoded(
            digest=dataset_digest(manifest),
            manifest=blob,
            size_bytes=manifest.blob_bytes,
            rows=manifest.row_count,
            columns=tuple(manifest.schema.names),
        )


def _next(blobs: Iterator[tuple[Digest, bytes]]) -> list[tuple[Digest, bytes]]:
    """Returns the next blobs, about a megabyte of them; empty at the end."""
    batch: list[tuple[Digest, bytes]] = []
    size_bytes = 0
    for digest, data in blobs:
        batch.append((digest, data))
        size_bytes += len(data)
        if size_bytes >= _BATCH_BYTES:
            break
    return batch


def _lines(rows: Sequence[Mapping[str, Any]]) -> bytes | None:
    """Returns rows as JSON Lines; None for values that JSON lacks, which decoding will refuse."""
    try:
        return _encoder.encode_lines(rows)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def _of_rows(rows: Sequence[Mapping[str, Any]], size_bytes: int) -> "Decoding":
    # Imported here: pyarrow is heavy, and only uploads need it.
    from flowmesh_store.datasets.budget import DecodeBudget  # noqa: PLC0415
    from flowmesh_store.datasets.decoding import Decoding  # noqa: PLC0415
    from flowmesh_store.datasets.row_readers import reader_of_rows  # noqa: PLC0415

    budget = DecodeBudget("rows", size_bytes, base_bytes=_THREAD_BASE_BYTES)
    return Decoding(reader_of_rows(rows, budget), budget)


def _of_file(name: str, path: Path, size_bytes: int) -> "Decoding":
    from flowmesh_store.datasets.budget import DecodeBudget  # noqa: PLC0415
    from flowmesh_store.datasets.decoding import Decoding  # noqa: PLC0415
    from flowmesh_store.datasets.row_readers import reader_of  # noqa: PLC0415

    budget = DecodeBudget(name, size_bytes, base_bytes=_THREAD_BASE_BYTES)
    return Decoding(reader_of(name, path, budget), budget)
