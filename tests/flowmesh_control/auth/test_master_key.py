"""The master keys' file: made once, for its owner only, and never in place of a lost one."""

from pathlib import Path

import pytest

from flowmesh_control.auth.master_key import (
    decode_ring,
    encode_ring,
    load_key_ring,
    with_new_key,
    without_key,
    write_ring,
)
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.sharing.key_ring import KeyRing


def test_the_master_key_is_created_once_and_readable_only_by_its_owner(tmp_path: Path) -> None:
    ring = load_key_ring(tmp_path / "state")
    assert load_key_ring(tmp_path / "state") == ring
    assert [(key_id, len(key)) for key_id, key in ring.secrets] == [("00", 32)]
    path = tmp_path / "state" / "master.key"
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(FlowMeshError, match="chmod 600"):
        load_key_ring(tmp_path / "state")


def test_a_damaged_master_key_is_refused_rather_than_replaced(tmp_path: Path) -> None:
    load_key_ring(tmp_path)
    for content in (b"short", b"00:zz", b"", b"0:" + b"a" * 64, b"00:" + b"ab" * 15):
        (tmp_path / "master.key").write_bytes(content)
        with pytest.raises(FlowMeshError) as refused:
            load_key_ring(tmp_path)
        assert refused.value.remedy == "restore it from a copy"
        assert "zz" not in str(refused.value)


def test_a_lost_key_of_a_used_folder_is_not_replaced(tmp_path: Path) -> None:
    ring = load_key_ring(tmp_path)
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "current").write_bytes(b"{}")
    (tmp_path / "master.key").unlink()
    with pytest.raises(FlowMeshError, match="fmesh keys adopt --lose-results"):
        load_key_ring(tmp_path)
    write_ring(tmp_path / "master.key", ring)  # restored
    assert load_key_ring(tmp_path) == ring


def test_a_bare_key_has_the_id_00_and_retains_it_when_rotated(tmp_path: Path) -> None:
    (tmp_path / "master.key").write_bytes(b"k" * 32)
    (tmp_path / "master.key").chmod(0o600)
    ring = load_key_ring(tmp_path)
    assert ring == KeyRing.of(b"k" * 32)
    rotated = with_new_key(ring)
    assert [key_id for key_id, _ in rotated.secrets] == ["01", "00"]
    assert decode_ring(encode_ring(rotated), where="") == rotated
    assert without_key(rotated, "00").secrets == rotated.secrets[:1]
    write_ring(tmp_path / "master.key", rotated)
    assert (tmp_path / "master.key").stat().st_mode & 0o777 == 0o600
    assert load_key_ring(tmp_path) == rotated
