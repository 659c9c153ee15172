"""Memory groups of version 2 on a FAKE cgroup file system (a directory): this is no kernel.

Version 1 is tried for real in ``tests/attacks/test_36_fork_bomb.py`` and ``test_37…``.
"""

import os
from pathlib import Path

import pytest

from flowmesh_core.errors import FlowMeshError
from flowmesh_worker.engines.code.call_groups import PREFIX, open_groups


def fake_cgroupfs(root: Path, *, others: tuple[int, ...] = (), delegated: bool = False) -> Path:
    """Makes a directory that looks like a mounted version 2, with this process in /scope."""
    scope = root / "scope"
    scope.mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpu memory pids")
    enabled = "memory pids" if delegated else ""
    (scope / "cgroup.subtree_control").write_text(enabled)
    (scope / "cgroup.procs").write_text("\n".join(map(str, (os.getpid(), *others))))
    (root / "own").write_text("0::/scope\n")
    return scope


def test_on_a_fake_cgroupfs_a_group_has_its_limits(tmp_path: Path) -> None:
    scope = fake_cgroupfs(tmp_path)
    groups = open_groups(tmp_path, tmp_path / "own")
    assert (scope / "cgroup.subtree_control").read_text() == "+memory +pids"
    assert (scope / "flowmesh-worker" / "cgroup.procs").read_text() == str(os.getpid())
    trial = set(scope.glob(f"{PREFIX}*"))  # a directory with files cannot be removed as a group is
    group = groups.create(100 << 20)
    [found] = set(scope.glob(f"{PREFIX}*")) - trial
    shown = {f.name: f.read_text() for f in found.iterdir()}
    assert shown["memory.max"] == str(100 << 20)
    assert shown["memory.swap.max"] == "0"
    assert shown["memory.oom.group"] == "1"
    assert shown["pids.max"] == "64"
    group.add(12345)
    assert (found / "cgroup.procs").read_text() == "12345"
    assert not group.out_of_memory()
    (found / "memory.events").write_text("max 3\noom 1\noom_kill 1\n")
    assert group.out_of_memory()
    (found / "cgroup.procs").write_text("")
    group.close()
    assert (found / "cgroup.kill").read_text() == "1"


def test_on_a_fake_cgroupfs_the_group_of_a_session_is_not_changed(tmp_path: Path) -> None:
    scope = fake_cgroupfs(tmp_path, others=(1,))
    with pytest.raises(FlowMeshError, match="not the worker's own"):
        open_groups(tmp_path, tmp_path / "own")
    assert not (scope / "flowmesh-worker").exists()
    assert (scope / "cgroup.subtree_control").read_text() == ""


def test_on_a_fake_cgroupfs_delegated_controllers_are_used_as_they_are(tmp_path: Path) -> None:
    scope = fake_cgroupfs(tmp_path, others=(1,), delegated=True)
    open_groups(tmp_path, tmp_path / "own")
    assert not (scope / "flowmesh-worker").exists()


def test_without_control_groups_the_reason_is_reported(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("0::/\n")
    with pytest.raises(FlowMeshError, match="no memory group can be created: no controller"):
        open_groups(tmp_path, tmp_path / "own")
