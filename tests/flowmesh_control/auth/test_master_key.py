"""The master key: made once, for its owner only."""

from pathlib import Path

import pytest

from flowmesh_control.auth.master_key import load_master_key
from flowmesh_core.errors import FlowMeshError


def test_the_master_key_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    key = load_master_key(tmp_path / "state")
    assert load_master_key(tmp_path / "state") == key
    assert len(key) == 32
    path = tmp_path / "state" / "master.key"
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(FlowMeshError, match="chmod 600"):
        load_master_key(tmp_path / "state")


def test_a_damaged_master_key_is_refused_rather_than_replaced(tmp_path: Path) -> None:
    load_master_key(tmp_path)
    (tmp_path / "master.key").write_bytes(b"short")
    with pytest.raises(FlowMeshError, match="5 bytes"):
        load_master_key(tmp_path)
