"""The environment variables of an engine host."""

from pathlib import Path

from flowmesh_worker.engine_api import HostSettings
from flowmesh_worker.engines.environment import library_environment
from flowmesh_worker.instances.scratch import Scratch
from flowmesh_worker.ipc.host_directory import remove_host_folder


def sockets(scratch: Path) -> Path:
    settings = HostSettings((), 1024, 1, {}, scratch)
    return Path(library_environment(settings, batch_invariant=True)["VLLM_RPC_BASE_PATH"])


def test_sockets_are_in_the_hosts_own_folder() -> None:
    assert sockets(Path("/tmp/short")) == Path("/tmp/short")


def test_a_deep_folder_does_not_make_a_sockets_path_too_long(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    found = sockets(deep)
    assert found.is_dir()
    assert len(str(found / ("x" * 36))) < 107
    (found / "socket").touch()
    assert sockets(deep) == found
    remove_host_folder(deep)
    assert not found.exists()
    assert not deep.exists()


def test_the_sockets_of_a_killed_worker_are_removed_with_its_folder(tmp_path: Path) -> None:
    root = tmp_path / ("d" * 60) / "run"
    killed = root / "killed"
    host = killed / "host-1"
    host.mkdir(parents=True)
    (killed / "lock").touch()
    found = sockets(host)
    assert found.parent != host
    Scratch(root, "next").remove()
    assert not found.exists()
    assert list(root.iterdir()) == []
