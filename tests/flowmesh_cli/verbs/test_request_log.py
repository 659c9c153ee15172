"""``fmesh request-log``: what a laptop logs, shown and verified, also without a fabric."""

import json
from pathlib import Path

import msgspec
import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer, fmesh

from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.local.request_log import logs_requests
from flowmesh_cli.verbs.request_log import _time
from flowmesh_core.errors import FlowMeshError

SPEC = {
    "steps": [{"name": "one", "uses": "data.sql", "with": {"query": "select 1 as n"}}],
    "outputs": {"rows": "one.rows"},
}


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("", ""),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000000Z"),
        ("2026-01-31T12:00:00+02:00", "2026-01-31T10:00:00.000000Z"),
        ("2026-01-31", "2026-01-31T00:00:00.000000Z"),
    ],
)
def test_since_is_a_time(text: str, time: str) -> None:
    assert _time(text) == time


def test_since_is_a_duration_and_other_values_are_refused() -> None:
    assert _time("1h") < _time("1m")
    with pytest.raises(CliError, match="not a time"):
        _time("yesterday")


def test_the_log_is_on_unless_it_is_switched_off() -> None:
    assert logs_requests({})
    assert not logs_requests({"FLOWMESH_REQUEST_LOG": "false"})
    with pytest.raises(FlowMeshError, match="neither true nor false"):
        logs_requests({"FLOWMESH_REQUEST_LOG": "off"})


@pytest.mark.slow
def test_a_laptops_request_log_is_shown_and_verified_and_its_loss_is_detected(
    tmp_path: Path,
) -> None:
    [done] = answer("run", flows.write(tmp_path, "done", SPEC), cwd=tmp_path)["runs"]
    shown = fmesh("request-log", "show", "--since", "1h", "--json", cwd=tmp_path)
    entries = [msgspec.json.decode(line) for line in shown.stdout.splitlines()]
    created = [e for e in entries if e["verb"] == "create" and e["objectRef"]["resource"] == "runs"]
    assert [e["objectRef"]["name"] for e in created] == [done["uid"]]
    assert created[0]["user"] == {"username": "owner"}
    text = fmesh("request-log", "show", "--user", "owner", cwd=tmp_path).stdout
    assert "owner  create  /v1/runs  team-a  201" in text
    found = answer("request-log", "verify", cwd=tmp_path)
    assert found["bad"] == ""
    assert found["entries"] > 0
    [key] = [k["key"] for k in answer("keys", "list", cwd=tmp_path)["public_keys"]]
    offline = ("request-log", "verify", "--store", ".flowmesh", "--public-key", key, "--json")
    assert json.loads(fmesh(*offline, cwd=tmp_path).stdout)["bad"] == ""
    [segment, *_] = sorted((tmp_path / ".flowmesh" / "request-log").glob("*/*.jsonl"))
    segment.write_bytes(segment.read_bytes().replace(b'"owner"', b'"alice"'))
    for command in (("request-log", "verify"), offline):
        refused = fmesh(*command, cwd=tmp_path)
        assert refused.returncode == ExitCode.FAILED
        assert segment.name in refused.stdout + refused.stderr
    assert fmesh("request-log", "verify", "--store", "x", cwd=tmp_path).returncode == ExitCode.USAGE
