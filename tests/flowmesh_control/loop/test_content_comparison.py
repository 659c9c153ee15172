"""What the control plane compares of a chunk that a worker wrote, and what it leaves alone."""

import msgspec
import pytest

from flowmesh_control.loop import content_comparison
from flowmesh_control.loop.content_comparison import compare_rows
from flowmesh_core.errors import IdentityMismatchError
from flowmesh_store.datasets import as_single_chunk


def test_a_chunk_of_too_many_values_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest, content = as_single_chunk([{"x": None}] * 100)
    [data] = content.values()
    forged = msgspec.structs.replace(manifest.chunks[0], rows="0" * 64)
    with pytest.raises(IdentityMismatchError, match="not those of its identity"):
        compare_rows(data, manifest.schema, forged)
    # Nulls take no bytes, but each is a value in Python.
    monkeypatch.setattr(content_comparison, "DECODED_BYTES_MAX", 1000)
    compare_rows(data, manifest.schema, forged)
