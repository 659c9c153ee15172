"""Decorators that report every store operation to a meter; used by metrics and benchmarks."""

import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from flowmesh_core.units import Digest
from flowmesh_store.blobs import BlobArea
from flowmesh_store.ports import NO_SIZES, Record, Records
from flowmesh_store.spool import SpooledFile, SpoolWriter

OK = "ok"


class OperationMeter(Protocol):
    """Receives measurements, once per operation; must not block."""

    def observe(self, operation: str, outcome: str, seconds: float, size_bytes: int) -> None:
        """Receives one operation.

        Args:
            operation: ``blob.get``, ``record.write`` and so on.
            outcome: ``ok`` or the name of the error, such as ``BlobNotFoundError``.
            seconds: how long it took.
            size_bytes: content transferred; 0 where it failed.
        """
        ...


class _Span:
    """One operation under way; the caller sets its size."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0


@contextmanager
def _span(meter: OperationMeter, operation: str) -> Iterator[_Span]:
    span, started = _Span(), time.perf_counter()
    try:
        yield span
    except BaseException as error:
        meter.observe(operation, type(error).__name__, time.perf_counter() - started, 0)
        raise
    meter.observe(operation, OK, time.perf_counter() - started, span.size_bytes)


class MeteredBlobs:
    """The blobs of a scope, whose operations are measured."""

    def __init__(self, inner: BlobArea, meter: OperationMeter) -> None:
        self._inner = inner
        self._meter = meter

    async def get(self, digest: Digest) -> bytes:
        """As :meth:`BlobStore.get`."""
        with _span(self._meter, "blob.get") as span:
            data = await self._inner.get(digest)
            span.size_bytes = len(data)
        return data

    async def put(self, digest: Digest, data: bytes | Path) -> None:
        """As :meth:`BlobStore.put`."""
        with _span(self._meter, "blob.put") as span:
            await self._inner.put(digest, data)
            span.size_bytes = os.lstat(data).st_size if isinstance(data, Path) else len(data)

    async def missing(
        self, digests: Iterable[Digest], sizes: Mapping[Digest, int] = NO_SIZES
    ) -> set[Digest]:
        """As :meth:`BlobStore.missing`."""
        with _span(self._meter, "blob.missing"):
            return await self._inner.missing(digests, sizes)

    async def fetch(self, digest: Digest, target: Path) -> int:
        """As :meth:`BlobFiles.fetch`."""
        with _span(self._meter, "blob.fetch") as span:
            span.size_bytes = await self._inner.fetch(digest, target)
        return span.size_bytes

    def spool(self, *, expected_bytes: int = 0) -> SpoolWriter:
        """As :meth:`SpoolingBlobs.spool`; the writing itself is not measured."""
        return self._inner.spool(expected_bytes=expected_bytes)

    async def put_spooled(self, spooled: SpooledFile) -> None:
        """As :meth:`SpoolingBlobs.put_spooled`."""
        with _span(self._meter, "blob.put") as span:
            await self._inner.put_spooled(spooled)
            span.size_bytes = spooled.size_bytes

    async def copy_from(self, scope: str, digest: Digest) -> bool:
        """As :meth:`BlobArea.copy_from`."""
        with _span(self._meter, "blob.copy"):
            return await self._inner.copy_from(scope, digest)


class MeteredRecords:
    """Records whose operations are measured."""

    def __init__(self, inner: Records, meter: OperationMeter) -> None:
        self._inner = inner
        self._meter = meter

    async def read(self, key: str) -> Record | None:
        """As :meth:`RecordStore.read`."""
        # Once per action: a context manager would cost as much as the rest of this method.
        started = time.perf_counter()
        try:
            record = await self._inner.read(key)
        except BaseException as error:
            self._failed("record.read", error, started)
            raise
        size = 0 if record is None else len(record.data)
        self._meter.observe("record.read", OK, time.perf_counter() - started, size)
        return record

    async def write(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        """As :meth:`RecordStore.write`."""
        started = time.perf_counter()
        try:
            etag = await self._inner.write(key, data, if_match=if_match)
        except BaseException as error:
            self._failed("record.write", error, started)
            raise
        self._meter.observe("record.write", OK, time.perf_counter() - started, len(data))
        return etag

    def _failed(self, operation: str, error: BaseException, started: float) -> None:
        self._meter.observe(operation, type(error).__name__, time.perf_counter() - started, 0)

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        """As :meth:`RecordStore.keys`; measured from the first key to the last."""
        with _span(self._meter, "record.keys"):
            async for key in self._inner.keys(prefix):
                yield key

    async def folders(self, prefix: str) -> AsyncIterator[str]:
        """As :meth:`RecordFolders.folders`; measured from the first name to the last."""
        with _span(self._meter, "record.folders"):
            async for name in self._inner.folders(prefix):
                yield name
