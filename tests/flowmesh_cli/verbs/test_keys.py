"""``fmesh keys``: rotation loses nothing, retirement needs sealing anew, a lost key is noticed."""

import json
from pathlib import Path

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer, fmesh

from flowmesh_cli.exit_codes import ExitCode

pytestmark = pytest.mark.slow

SPEC = {
    "steps": [{"name": "one", "uses": "data.sql", "with": {"query": "select 1 as n"}}],
    "outputs": {"rows": "one.rows"},
}


def run(folder: Path) -> tuple[int, int]:
    """Runs the workflow; returns executed actions and hits."""
    [done] = answer("run", flows.write(folder, "done", SPEC), cwd=folder)["runs"]
    return done["executed"], done["hits"]


def reference(folder: Path) -> str:
    text = json.dumps(answer("outputs", cwd=folder))
    return text[text.index("cas:dataset:") :].partition('"')[0]


def test_a_key_is_rotated_records_are_resealed_and_it_is_retired_without_loss(
    tmp_path: Path,
) -> None:
    assert run(tmp_path) == (1, 0)
    assert reference(tmp_path).rpartition(".")[2].startswith("00")
    assert answer("keys", "rotate", cwd=tmp_path) == {"newest": "01"}
    assert run(tmp_path) == (0, 1)
    found = answer("keys", "list", cwd=tmp_path)
    assert (found["newest"], found["ids"], found["unsealed"]) == ("01", ["01", "00"], 0)
    assert found["records"]["00"] > 0
    refused = fmesh("keys", "retire", "00", cwd=tmp_path)
    assert refused.returncode != ExitCode.OK
    assert "fmesh keys reseal" in refused.stderr
    assert answer("keys", "reseal", cwd=tmp_path)["left"] == 0
    assert answer("keys", "retire", "00", cwd=tmp_path) == {"key_id": "00", "lost": 0}
    found = answer("keys", "list", cwd=tmp_path)
    assert (found["ids"], found["retired"]) == (["01"], ["00"])
    assert set(found["records"]) == {"01"}
    assert run(tmp_path) == (0, 1)
    assert reference(tmp_path).rpartition(".")[2].startswith("01")
    assert (tmp_path / ".flowmesh" / "master.key").stat().st_mode & 0o777 == 0o600


def test_a_lost_key_is_refused_until_it_is_restored_or_its_results_are_abandoned(
    tmp_path: Path,
) -> None:
    assert run(tmp_path) == (1, 0)
    path = tmp_path / ".flowmesh" / "master.key"
    key = path.read_bytes()
    path.unlink()
    refused = fmesh("run", "done.yaml", cwd=tmp_path)
    assert refused.returncode != ExitCode.OK
    assert "fmesh keys adopt --lose-results" in refused.stderr
    assert not path.exists()
    path.touch(0o600)
    path.write_bytes(key)
    assert run(tmp_path) == (0, 1)
    path.unlink()
    assert fmesh("keys", "adopt", cwd=tmp_path).returncode == ExitCode.USAGE
    assert answer("keys", "adopt", "--lose-results", cwd=tmp_path) == {"lost": ["00"]}
    assert run(tmp_path) == (1, 0)
    assert run(tmp_path) == (0, 1)


def test_on_a_cluster_the_commands_are_printed(tmp_path: Path) -> None:
    done = fmesh("keys", "rotate", "--cluster", cwd=tmp_path)
    assert done.returncode == ExitCode.OK, done.stderr
    assert "fmesh keys rotate --file master.key" in done.stdout
    assert "kubectl -n flowmesh patch secret flowmesh-master-key" in done.stdout
