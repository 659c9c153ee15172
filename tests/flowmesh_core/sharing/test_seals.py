"""Seals: no changed, moved or foreign record opens; rotated keys still do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_core.sharing.seals import (
    SEAL_BYTES,
    SealError,
    Seals,
    UncheckedSeals,
    UnknownKeyError,
    seal_key_id,
)

RING = KeyRing.of(b"k" * 32)
KEYS = st.sampled_from(["actions/ns-a/1", "actions/ns-b/1", "runs/u/final", "runs/u/spec"])


@given(KEYS, st.binary(max_size=300))
def test_a_sealed_record_opens_with_its_content(key: str, content: bytes) -> None:
    sealed = Seals(RING).seal(key, content)
    assert Seals(RING).open(key, sealed) == UncheckedSeals().open(key, sealed) == content
    assert sealed.startswith(content)
    assert len(sealed) == len(content) + SEAL_BYTES
    assert seal_key_id(sealed) == "00"


@given(KEYS, st.binary(max_size=300), st.data())
def test_no_record_with_a_changed_byte_opens(key: str, content: bytes, data: st.DataObject) -> None:
    sealed = bytearray(Seals(RING).seal(key, content))
    at = data.draw(st.integers(0, len(sealed) - 1))
    sealed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((SealError, UnknownKeyError)):
        Seals(RING).open(key, bytes(sealed))


@given(KEYS, KEYS, st.binary(max_size=100))
def test_a_record_that_was_moved_does_not_open(here: str, there: str, content: bytes) -> None:
    sealed = Seals(RING).seal(here, content)
    if here == there:
        assert Seals(RING).open(there, sealed) == content
    else:
        with pytest.raises(SealError, match="not valid"):
            Seals(RING).open(there, sealed)


@pytest.mark.parametrize("cut", [1, SEAL_BYTES - 1, SEAL_BYTES, SEAL_BYTES + 1])
def test_a_truncated_record_does_not_open(cut: int) -> None:
    with pytest.raises(SealError, match="no seal"):
        Seals(RING).open("k", Seals(RING).seal("k", b"{}")[:-cut])


def test_records_open_after_a_rotation_and_not_with_a_retired_or_missing_key() -> None:
    old, new = ("00", b"k" * 32), ("01", b"n" * 32)
    sealed = Seals(RING).seal("k", b"{}")
    assert Seals(KeyRing((new, old))).open("k", sealed) == b"{}"
    assert seal_key_id(Seals(KeyRing((new, old))).seal("k", b"{}")) == "01"
    with pytest.raises(UnknownKeyError, match=r"master key 00.*restore key 00"):
        Seals(KeyRing((new,))).open("k", sealed)
    with pytest.raises(SealError, match="retired master key 00"):
        Seals(KeyRing((new,)), retired=["00"]).open("k", sealed)
    with pytest.raises(SealError, match="not valid"):
        Seals(KeyRing.of(b"x" * 32)).open("k", sealed)
