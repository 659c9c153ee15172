"""``python -m flowmesh_control.importer.child NAME FILE PARENT``: decodes a file of rows.

Started by the control plane for each upload that is large or Parquet. It has no token, no key and
no store: it reads one file and writes frames to its standard output. Its memory is bounded, so that
a file that needs too much ends this process and not the control plane.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from flowmesh_control.evaluators.confinement import confine
from flowmesh_control.importer.frames import (
    MEMORY_BYTES,
    PIECE_BYTES,
    BlobEnd,
    BlobPart,
    DatasetDecoded,
    DecodingRefused,
    encoded,
)
from flowmesh_core.dataset import dataset_digest, encode_manifest
from flowmesh_core.errors import ContentLimitError, FlowMeshError
from flowmesh_core.identity import digest_bytes
from flowmesh_core.units import Digest
from flowmesh_store.datasets.budget import DecodeBudget
from flowmesh_store.datasets.decoding import Decoding
from flowmesh_store.datasets.row_readers import reader_of

_MEMORY_REMEDY = "cut it into several files, or its rows into shorter ones"


def main() -> None:
    """Decodes the file that the arguments name."""
    name, path, parent = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    confine(parent, MEMORY_BYTES)
    for frame in frames(name, path):
        write(out, frame)
    out.flush()
    os._exit(0)  # skips the exit handlers of libraries, which would only take time


def frames(name: str, path: Path) -> Iterator[BlobEnd | DatasetDecoded | DecodingRefused]:
    """Yields the frames of a file; the last is ``DatasetDecoded`` or ``DecodingRefused``.

    Args:
        name: the file's name; its suffix gives the format.
        path: of the file.
    """
    try:
        budget = DecodeBudget(name, path.stat().st_size)
        decoding = Decoding(reader_of(name, path, budget), budget)
        for digest, data in decoding.blobs():
            yield BlobEnd(digest, data)
        encoded_manifest = encode_manifest(decoding.manifest)
        blob = digest_bytes(encoded_manifest)
        yield BlobEnd(blob, encoded_manifest)
        yield _decoded(decoding, blob)
    except MemoryError:
        yield DecodingRefused(
            f"reading it needs more than {MEMORY_BYTES >> 20} MiB of memory",
            name,
            _MEMORY_REMEDY,
            limit=True,
        )
    except RecursionError:
        yield DecodingRefused("nested too deeply", name, "flatten it", limit=True)
    except FlowMeshError as e:
        limit = isinstance(e, ContentLimitError)
        yield DecodingRefused(e.message, e.where, e.remedy, limit=limit)
    except (ValueError, pa.ArrowException) as e:  # of a library, at bytes that no check foresaw
        yield DecodingRefused(f"it cannot be read: {e}", name, "write it again", limit=False)


def _decoded(decoding: Decoding, blob: Digest) -> DatasetDecoded:
    manifest = decoding.manifest
    return DatasetDecoded(
        digest=dataset_digest(manifest),
        manifest=blob,
        size_bytes=manifest.blob_bytes,
        rows=manifest.row_count,
        columns=tuple(manifest.schema.names),
    )


def write(out: BinaryIO, frame: BlobEnd | DatasetDecoded | DecodingRefused) -> None:
    """Writes a frame, a long blob as several."""
    if isinstance(frame, BlobEnd):
        last = max(0, len(frame.data) - 1) // PIECE_BYTES * PIECE_BYTES
        for start in range(0, last, PIECE_BYTES):
            out.write(encoded(BlobPart(frame.data[start : start + PIECE_BYTES])))
        frame = BlobEnd(frame.digest, frame.data[last:])
    out.write(encoded(frame))


if __name__ == "__main__":
    main()
