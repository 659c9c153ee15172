"""``fmesh resume`` continues a run that the control plane stopped twice because of."""

import re
from pathlib import Path

import msgspec
from tests.flowmesh_cli.calling import answer, fmesh, started

from flowmesh_control.auth.master_key import load_key_ring
from flowmesh_control.records.keys import SUSPECT_RUNS
from flowmesh_control.records.suspects import Death, SuspectRecord
from flowmesh_core.sharing.seals import Seals
from flowmesh_store.sealed_records import SealedRecords
from flowmesh_store.store import open_store

FILE = """
apiVersion: flowmesh.dev/v1alpha1
kind: FlowMeshWorkflow
metadata: {name: twice}
spec:
  steps: [{name: a, uses: test.sleep, with: {seconds: 3600}}]
"""


async def test_a_run_that_stopped_the_control_plane_twice_is_resumed(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(FILE)
    with started("up", "--workers", "0", cwd=tmp_path) as up:
        up.until("serving")
        assert fmesh("submit", "w.yaml", cwd=tmp_path).returncode == 0
        up.process.terminate()
        up.process.wait()
    uid = answer("status", cwd=tmp_path)["uid"]
    deaths = SuspectRecord((Death(1, "LookedUp"), Death(2, "Submitted")))
    folder = tmp_path / ".flowmesh"
    seals = Seals(load_key_ring(folder))
    records = SealedRecords(open_store(folder).records, seals, refused=lambda _: None)
    await records.write(f"{SUSPECT_RUNS}{uid}", msgspec.json.encode(deaths))
    shown = fmesh("status", cwd=tmp_path).stdout
    assert "the control plane stopped twice while it worked on this run" in shown
    assert f"fmesh resume {uid}" in shown
    assert fmesh("resume", cwd=tmp_path).stdout == f"{uid} Running\n"
    assert answer("status", cwd=tmp_path)["phase"] == "Running"
    assert fmesh("resume", cwd=tmp_path).returncode != 0


def test_status_and_why_say_that_no_fabric_continues_an_unfinished_run(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(FILE)
    commands = (["status"], ["status", "--all"], ["status", "--json"], ["why", "a"])
    with started("up", "--workers", "0", cwd=tmp_path) as up:
        up.until("serving")
        assert fmesh("submit", "w.yaml", cwd=tmp_path).returncode == 0
        assert fmesh("status", cwd=tmp_path).stderr == ""
        up.kill()
    refused = fmesh("submit", "w.yaml", cwd=tmp_path).stderr
    reason, remedy = re.findall("(?m)^(?:error|remedy): (.*)$", refused)
    for command in commands:
        done = fmesh(*command, cwd=tmp_path)
        assert done.returncode == 0
        assert done.stderr == f"{reason}, so unfinished runs wait: {remedy}\n"
