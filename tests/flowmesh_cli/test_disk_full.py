"""A state folder on a full disk: clear errors, nothing published is lost, work continues."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.blob_views import blobs_of
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer, fmesh, started
from tests.flowmesh_cli.shared_fabric import SharedFabric, shared_fabric

from flowmesh_cli.exit_codes import ExitCode
from flowmesh_store.hashing import digest_of
from flowmesh_store.store import open_store

pytestmark = pytest.mark.slow

DISK_MIB = 24
FULL = "no space is left"
REMEDY = "free space or raise the quota"


@contextlib.contextmanager
def small_disk(folder: Path, mib: int) -> Iterator[None]:
    """Mounts a separate small disk for a state folder during a block."""
    disk = folder / ".flowmesh"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(disk)]
    if os.getuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs root and CAP_SYS_ADMIN")
    try:
        yield
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[SharedFabric]:
    """A fabric whose whole store lies on a small disk."""
    with small_disk(tmp_path, DISK_MIB), shared_fabric(tmp_path) as found:
        yield found


def fill(fabric: SharedFabric, *, leave_bytes: int = 0) -> Path:
    """Uses up the disk's space with a file; deleting the file frees it."""
    path = fabric.store / f"filling-{leave_bytes}"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass
    os.truncate(path, max(0, path.stat().st_size - leave_bytes))
    return path


def put_garbage(store: Path, size_bytes: int) -> None:
    """Writes an unreferenced blob that is old enough to be collected."""
    data = os.urandom(size_bytes)
    asyncio.run(blobs_of(open_store(store)).put(digest_of(data), data))
    (path,) = store.glob(f"cas/*/*/{digest_of(data)}")
    os.utime(path, (0, 0))


def test_a_full_disk_can_be_read_and_is_freed_by_a_collection(tmp_path: Path) -> None:
    """Without a running fabric: the command has no space for a proof or an epoch."""
    with small_disk(tmp_path, DISK_MIB):
        store = tmp_path / ".flowmesh"
        first = flows.write(tmp_path, "first", rows(1))
        assert fmesh("run", first, cwd=tmp_path).returncode == ExitCode.OK
        put_garbage(store, 4 << 20)
        with (store / "filling").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        epochs = len(list((store / "epochs").iterdir()))

        refused = fmesh("run", first, cwd=tmp_path)
        assert refused.returncode == ExitCode.FAILED
        assert FULL in refused.stderr
        assert f"remedy: {REMEDY}" in refused.stderr
        (shown,) = answer("status", "--all", cwd=tmp_path)["runs"]
        assert shown["phase"] == "Succeeded"
        purge = fmesh("cache", "purge", "--yes", cwd=tmp_path)
        assert (purge.returncode, FULL in purge.stderr) == (ExitCode.FAILED, True), purge.stderr
        done = answer("cache", "gc", cwd=tmp_path)
        assert (done["deleted"], done["deleted_bytes"]) == (1, 4 << 20)
        assert len(list((store / "epochs").iterdir())) == epochs
        assert answer("run", first, cwd=tmp_path)["runs"][0]["hits"] == 1


def rows(number: int) -> dict[str, Any]:
    """Returns a workflow with a result of about 400 chunks."""
    query = f"select range as i, md5(range::varchar || '{number}') as h from range(12000)"
    step = {"name": "many", "uses": "data.sql", "with": {"query": query}}
    return {"steps": [step], "outputs": {"rows": "many.rows"}}


def test_a_full_disk_is_reported_loses_nothing_and_work_continues_once_there_is_space(
    fabric: SharedFabric,
) -> None:
    first = fabric.answer(rows(1))
    filling = fill(fabric, leave_bytes=700_000)
    two = flows.write(fabric.folder, "two", rows(2))
    with started("run", two, cwd=fabric.folder) as run:
        run.until("many failed")  # what it stored may leave no space for a verdict
        filling.unlink()
        assert run.end() == ExitCode.FAILED, run.said
        assert "failed in step many: store" in run.said
        assert FULL in run.said
        assert f"try: {REMEDY}" in run.said
    assert fmesh("status", first["uid"], cwd=fabric.folder).returncode == ExitCode.OK

    # Its result is larger than a block: a smaller one may fit into the last block of the log.
    nap = flows.write(fabric.folder, "nap", flows.sleeping(4, "x" * 3000))
    with started("run", nap, cwd=fabric.folder) as run:
        run.until("rest running")
        rest = fill(fabric)
        run.until(f"the fabric waits for its store: {FULL}")
        refused = fabric.run(rows(3), name="three")
        assert refused.returncode == ExitCode.FAILED
        assert FULL in refused.stderr
        assert f"remedy: {REMEDY}" in refused.stderr
        run.until("rest running: the result could not be published: no space is left")
        assert run.process.poll() is None
        rest.unlink()
        assert run.end() == ExitCode.OK, run.said
    (napped,) = (
        r for r in answer("status", "--all", cwd=fabric.folder)["runs"] if r["name"] == "nap"
    )
    _, step = answer("status", napped["uid"], cwd=fabric.folder)["steps"]
    assert (step["executed"], step.get("attempts", 0)) == (1, 0), "what had run is not run again"

    again = fabric.answer(rows(1))
    assert (again["executed"], again["hits"]) == (0, 1)
    assert again["outputs"]["rows"]["digest"] == first["outputs"]["rows"]["digest"]
    assert fabric.answer(rows(2), name="two")["phase"] == "Succeeded"
    assert fabric.answer(rows(3), name="three")["phase"] == "Succeeded"
    assert "Traceback" not in fabric.up.said
    assert "Logging error" not in fabric.up.said
    fabric.still_serves()
