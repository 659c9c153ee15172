"""Arrays of every type, shape and stride come out of a packed value as they went in."""

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from flowmesh_worker.engines.code.packed_arrays import NotPackedError, pack, unpack


def copied(value: Any) -> Any:
    """Returns the value as another process unpacks it."""
    return unpack(memoryview(b"".join(pack(value))))


ARRAYS = npst.arrays(
    st.one_of(npst.scalar_dtypes(), npst.unicode_string_dtypes(), npst.byte_string_dtypes()),
    npst.array_shapes(min_dims=0, min_side=0, max_dims=4, max_side=5),
)


@given(ARRAYS, st.data())
def test_an_array_of_any_type_shape_and_stride_is_equal(array: Any, data: st.DataObject) -> None:
    if array.ndim and data.draw(st.booleans()):
        array = array[:: data.draw(st.sampled_from((-1, 2, -2)))].T
    found = copied(array)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()
    assert not found.size or not found.flags.writeable


def test_arrays_inside_other_values_keep_their_places() -> None:
    first, second = np.arange(7, dtype="<f4"), np.eye(3)
    found = copied({"a": [first, {"b": second}], "text": "x", "n": None, "raw": b"\xc1"})
    assert found["text"] == "x"
    assert (found["n"], found["raw"]) == (None, b"\xc1")
    assert (found["a"][0] == first).all()
    assert (found["a"][1]["b"] == second).all()


@pytest.mark.parametrize(
    "value", [np.array([object()]), np.zeros(2, dtype=[("a", "i4")]), {"x": object()}]
)
def test_what_only_pickle_could_pass_is_refused(value: Any) -> None:
    with pytest.raises((NotPackedError, TypeError)):
        pack(value)


@given(st.binary(max_size=200), st.integers(0, 150), st.integers(0, 255))
def test_damaged_bytes_are_refused_or_read_as_a_value_and_never_beyond_their_end(
    noise: bytes, at: int, byte: int
) -> None:
    damaged = bytearray(b"".join(pack({"a": np.arange(4.0), "b": 1})))
    damaged[at % len(damaged)] = byte
    for data in (bytes(damaged), noise, damaged[: at % len(damaged)], damaged[:12] + noise):
        with contextlib.suppress(NotPackedError):
            unpack(memoryview(bytes(data)))
