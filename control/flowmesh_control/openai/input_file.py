"""Reads a batch's input file into rows and an index, in a thread."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from flowmesh_control.openai.records import BatchIndex, ErrorLine
from flowmesh_core.openai.batch_lines import MAX_LINE_BYTES, BatchLines, read_requests
from flowmesh_store.spool import SpooledFile, SpoolWriter


def read_input_file(
    source: Path, endpoint: str, writer: SpoolWriter
) -> tuple[SpooledFile, BatchLines]:
    """Writes the requests of a file as rows of JSON Lines; blocks.

    Args:
        source: the file.
        endpoint: the path that all requests must have.
        writer: for the rows; removed where this fails.

    Raises:
        BatchFileError: the file cannot be a batch.
        StoreError: the rows could not be written.
    """
    found = BatchLines()
    with writer, source.open("rb") as file:
        for row in read_requests(_lines(file), endpoint, found):
            writer.write(row + b"\n")
        return writer.finish(), found


def index_of(found: BatchLines) -> bytes:
    """Returns the index of a file as it is stored."""
    wrong = [ErrorLine(w.number, w.custom_id, w.error.status, w.error.body()) for w in found.wrong]
    return msgspec.json.encode(BatchIndex(found.custom_ids, wrong))


def _lines(file: object) -> Iterator[bytes]:
    """Yields lines; of one that is too long only the beginning."""
    read = file.readline  # type: ignore[attr-defined]
    while line := read(MAX_LINE_BYTES + 1):
        yield line
        while len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = read(MAX_LINE_BYTES + 1)
