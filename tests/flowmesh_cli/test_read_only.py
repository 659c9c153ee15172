"""A read-only state folder: queries are answered, other commands fail with "read-only"."""

import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer, fmesh
from tests.flowmesh_cli.test_disk_full import small_disk

from flowmesh_cli.exit_codes import ExitCode

pytestmark = pytest.mark.slow

SPEC = {
    "steps": [{"name": "one", "uses": "data.sql", "with": {"query": "select 1 as n"}}],
    "outputs": {"rows": "one.rows"},
}


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder / ".flowmesh")], check=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yields a read-only folder with one ended run and one unfinished run."""
    found = tmp_path_factory.mktemp("read-only")
    with small_disk(found, 64):
        done = fmesh("run", flows.write(found, "done", SPEC), cwd=found)
        assert done.returncode == ExitCode.OK, done.stderr
        remount(found, "ro")
        yield found
        remount(found, "rw")


@functools.cache
def uid_of(folder: Path) -> str:
    return str(answer("status", "--all", cwd=folder)["runs"][0]["uid"])


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["status", "--all"],
        ["receipt"],
        ["outputs"],
        ["lineage", "{uid}/rows"],
        ["logs"],
        ["cache", "gc", "--dry-run"],
        ["cache", "stats"],
        ["plan", "done.yaml"],
    ],
    ids=" ".join,
)
def test_read_only_commands_work_on_a_read_only_folder(folder: Path, command: list[str]) -> None:
    given = [part.format(uid=uid_of(folder)) for part in command]
    done = fmesh(*given, cwd=folder)
    assert done.returncode == ExitCode.OK, done.stderr
    assert "Traceback" not in done.stderr


def test_the_ended_run_is_shown_and_its_output_can_be_downloaded(folder: Path) -> None:
    assert answer("status", uid_of(folder), cwd=folder)["phase"] == "Succeeded"
    target = folder / "got"
    done = fmesh("outputs", uid_of(folder), "--download", target, cwd=folder)
    assert done.returncode == ExitCode.OK, done.stderr
    assert [p.read_text() for p in target.rglob("*") if p.is_file()] == ['{"n":1}\n']


@pytest.mark.parametrize(
    "command",
    [
        ["run", "done.yaml"],
        ["up"],
        ["audit", "{uid}"],
        ["cache", "gc"],
        ["cache", "purge", "--yes"],
    ],
    ids=" ".join,
)
def test_commands_that_write_fail_with_a_read_only_error(folder: Path, command: list[str]) -> None:
    given = [part.format(uid=uid_of(folder)) for part in command]
    done = fmesh(*given, cwd=folder)
    assert done.returncode == ExitCode.FAILED, (done.returncode, done.stdout, done.stderr)
    assert "read-only" in done.stderr
    assert "remedy: " in done.stderr
    assert "Traceback" not in done.stderr


def test_the_folder_is_writable_again_after_a_remount(folder: Path) -> None:
    remount(folder, "rw")
    try:
        again = answer("run", "done.yaml", cwd=folder)
        assert (again["runs"][0]["executed"], again["runs"][0]["hits"]) == (0, 1)
    finally:
        remount(folder, "ro")
