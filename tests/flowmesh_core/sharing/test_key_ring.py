"""Master keys: the newest signs, all verify, and each purpose has its own key."""

import pytest

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.sharing.key_ring import KeyRing

OLD, NEW = bytes(32), bytes([1]) * 32


def test_the_newest_key_is_the_first_and_older_ones_stay() -> None:
    before = KeyRing.of(OLD).derive("test")
    after = KeyRing((("01", NEW), ("00", OLD))).derive("test")
    assert after.newest_id == "01"
    assert after.newest == KeyRing.of(NEW).derive("test").newest
    assert after.by_id["00"] == before.newest


def test_each_purpose_has_its_own_key() -> None:
    ring = KeyRing.of(OLD)
    assert ring.derive("references").newest != ring.derive("records").newest != OLD


@pytest.mark.parametrize(
    ("secrets", "says"),
    [
        ((), "empty"),
        ((("00", b"short"),), "5 bytes"),
        ((("0", OLD),), "'0'"),
        ((("0G", OLD),), "'0G'"),
        ((("00", OLD), ("00", NEW)), "'00'"),
    ],
)
def test_an_invalid_key_ring_is_refused(secrets: tuple[tuple[str, bytes], ...], says: str) -> None:
    with pytest.raises(FlowMeshError, match=says):
        KeyRing(secrets)
