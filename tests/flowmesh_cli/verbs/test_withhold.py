"""``fmesh withhold`` and ``fmesh verify`` on a laptop."""

from pathlib import Path

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer, fmesh

from flowmesh_cli.exit_codes import ExitCode

pytestmark = pytest.mark.slow

SPEC = {
    "inputs": {"numbers": {"rows": [{"n": n} for n in range(3)]}},
    "steps": [
        {
            "name": "one",
            "uses": "data.sql",
            "inputs": {"rows": "inputs.numbers"},
            "with": {"query": "select n * 2 as n from rows order by n"},
        }
    ],
    "outputs": {"rows": "one.rows"},
}


def test_results_are_withheld_verified_and_released(tmp_path: Path) -> None:
    flow = flows.write(tmp_path, "done", SPEC)
    answer("run", flow, cwd=tmp_path)
    assert answer("verify", "done/rows", cwd=tmp_path)["broken"] is None

    nothing = fmesh("withhold", cwd=tmp_path)
    assert nothing.returncode == ExitCode.USAGE
    assert "--worker" in nothing.stderr
    declined = fmesh("withhold", "--pool", "local", cwd=tmp_path)
    assert declined.returncode == ExitCode.INTERRUPTED
    shown = answer("withhold", "--pool", "local", "--dry-run", cwd=tmp_path)
    assert (shown["count"], len(shown["runs"])) == (1, 1)
    done = fmesh("withhold", "--since", "1h", "--yes", cwd=tmp_path)
    assert done.returncode == ExitCode.OK
    assert "withheld 1 result of 1 read (1 in ns-team-a)" in done.stdout
    assert answer("withhold", "--list", cwd=tmp_path)["count"] == 1

    broken = fmesh("verify", "done", cwd=tmp_path)
    assert broken.returncode == ExitCode.FAILED
    assert "is withheld" in broken.stdout
    [again] = answer("run", flow, cwd=tmp_path)["runs"]
    assert (again["executed"], again["hits"]) == (1, 0)
    assert answer("withhold", "--release", "--pool", "local", cwd=tmp_path) == {"released": 1}
    unknown = fmesh("verify", "done/absent", cwd=tmp_path)
    assert unknown.returncode == ExitCode.NOT_FOUND
