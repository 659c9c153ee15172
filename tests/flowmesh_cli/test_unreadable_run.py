"""A truncated final record: only that run is unreadable, and the error names the file."""

import shutil
from pathlib import Path

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer, fmesh

from flowmesh_cli.exit_codes import ExitCode

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "not indexed"])
def test_one_truncated_final_record_hides_no_other_run(tmp_path: Path, indexed: bool) -> None:
    uids = {}
    for name in ("bad", "good"):
        spec = {"steps": [{"name": "one", "uses": "test.noop", "with": {"value": name}}]}
        (run,) = answer("run", flows.write(tmp_path, name, spec), cwd=tmp_path)["runs"]
        uids[name] = run["uid"]
    store = tmp_path / ".flowmesh"
    final = store / "runs" / uids["bad"] / "final"
    final.write_bytes(final.read_bytes()[:100])
    if not indexed:
        shutil.rmtree(store / "ended")

    listed = answer("status", "--all", cwd=tmp_path)["runs"]
    phases = {run["uid"]: run["phase"] for run in listed}
    assert phases == {uids["good"]: "Succeeded", uids["bad"]: phases[uids["bad"]]}
    assert phases[uids["bad"]] == ("Succeeded" if indexed else "unreadable")
    assert answer("status", uids["good"], cwd=tmp_path)["phase"] == "Succeeded"
    refused = fmesh("status", uids["bad"], cwd=tmp_path)
    assert refused.returncode == ExitCode.FAILED
    assert f"runs/{uids['bad']}/final: the record cannot be read" in refused.stderr
    assert "remedy: restore the object" in refused.stderr
