"""A state folder is moved as docs/upgrades.md says, and verified in the new place."""

import re
import shutil
from pathlib import Path

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer, fmesh

from flowmesh_cli.exit_codes import ExitCode

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "upgrades.md").read_text()
SPEC = {
    "steps": [{"name": "one", "uses": "data.sql", "with": {"query": "select 1 as n"}}],
    "outputs": {"rows": "one.rows"},
}


def test_a_moved_folder_is_verified_in_the_new_place(tmp_path: Path) -> None:
    flow, old, new = flows.write(tmp_path, "flow", SPEC), tmp_path / "old", tmp_path / "new"
    done = fmesh("run", flow, "--state-dir", old, cwd=tmp_path)
    assert done.returncode == ExitCode.OK, done.stderr
    left_out = re.findall(r"--exclude=/(\S+)", PAGE)
    assert len(left_out) > 5
    shutil.copytree(old, new, ignore=lambda folder, _: left_out if Path(folder) == old else ())
    shutil.rmtree(old)
    report = answer("verify", "flow", "--state-dir", new, cwd=tmp_path)
    assert (report["broken"], report["steps"]) == (None, 1)
