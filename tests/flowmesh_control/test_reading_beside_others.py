"""Large chunks are read in a thread, so that the control plane answers others meanwhile."""

import threading

import pytest

from flowmesh_control.queries.downloads import read_beside_others
from flowmesh_core.dataset import ChunkRef, Column, ColumnType, Schema
from flowmesh_core.units import Digest

SCHEMA = Schema((Column("a", ColumnType.INT),))


@pytest.mark.parametrize(
    ("rows", "size", "beside"),
    [(32, 1 << 10, False), (32, 1 << 20, True), (1 << 17, 1 << 10, True)],
)
async def test_large_chunks_are_read_in_a_thread(rows: int, size: int, beside: bool) -> None:
    chunk = ChunkRef(blob=Digest("b"), rows=Digest("r"), count=rows, bytes=size)
    found = await read_beside_others(
        lambda *_: threading.current_thread(), bytes(size), SCHEMA, chunk
    )
    assert (found is not threading.main_thread()) == beside
