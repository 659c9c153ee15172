"""Files and folders that this user cannot use: the path, its owner and the remedy."""

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import COMMAND, environment

from flowmesh_cli.connection.state_dir import StateDir
from flowmesh_cli.errors import guarded, path_error
from flowmesh_cli.exit_codes import ExitCode

OTHER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="acts as two users")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as found:
        Path(found).chmod(0o777)
        yield Path(found)


def as_other(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *arguments]
    try:
        return subprocess.run(
            command,
            cwd=cwd,
            env=environment() | {"PYTHONDONTWRITEBYTECODE": "1", "HOME": str(cwd)},
            user=OTHER,
            group=OTHER,
            extra_groups=[],
            capture_output=True,
            text=True,
            check=False,
        )
    except PermissionError:
        pytest.skip(f"other users cannot read the interpreter in {sys.base_prefix}")


@as_root
@pytest.mark.slow
def test_the_state_folder_of_another_user_is_named_with_its_owner_and_the_remedy(
    folder: Path,
) -> None:
    state = folder / ".flowmesh"
    StateDir(state).prepare()
    for command in ("status", "up"):
        done = as_other(command, cwd=folder)
        assert done.returncode == ExitCode.USAGE, done.stderr
        assert f"error: {state}: cannot be read or written: Permission denied" in done.stderr
        assert f"{state} belongs to root, and you are nobody" in done.stderr
        assert f"`sudo chown -R nobody {state}`" in done.stderr
        assert "--state-dir" in done.stderr


@as_root
@pytest.mark.slow
def test_an_input_that_cannot_be_read_is_a_problem_of_its_line(folder: Path) -> None:
    rows = folder / "bad.jsonl"
    rows.write_text('{"q": "a"}\n')
    rows.chmod(0o600)
    step = {"name": "s", "uses": "data.sql", "inputs": {"rows": "inputs.rows"}}
    spec = {
        "inputs": {"rows": {"dataset": "./bad.jsonl"}},
        "steps": [step | {"with": {"query": "select * from rows"}}],
    }
    flows.write(folder, "flow", spec)
    done = as_other("validate", "flow.yaml", cwd=folder)
    assert done.returncode == ExitCode.USAGE, done.stderr
    assert f"spec.inputs.rows.dataset: {rows}: cannot be read or written" in done.stderr
    assert "belongs to root" in done.stderr


def test_a_path_below_a_file_is_the_users_error_and_not_an_internal_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(typer.Exit) as caught:
        guarded(lambda: (file / "below").write_text(""))()
    assert caught.value.exit_code == ExitCode.USAGE
    said = capsys.readouterr().err
    assert f"error: {file / 'below'}: cannot be read or written: Not a directory" in said
    assert "--state-dir" in said


@pytest.mark.parametrize("number", [errno.EROFS, errno.EISDIR, errno.ENAMETOOLONG])
def test_other_paths_that_cannot_be_used_are_named(tmp_path: Path, number: int) -> None:
    found = path_error(OSError(number, os.strerror(number), str(tmp_path)))
    assert found is not None
    assert (found.where, found.code) == (str(tmp_path), ExitCode.USAGE)
    assert os.strerror(number) in found.message


def test_an_error_that_no_path_explains_stays_internal(tmp_path: Path) -> None:
    assert path_error(PermissionError(errno.EPERM, "Operation not permitted")) is None
    assert path_error(FileNotFoundError(errno.ENOENT, "gone", str(tmp_path / "x"))) is None
