"""``fmesh outputs --download`` of a run that has not succeeded says which outputs are missing."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flowmesh_api.v1.runs import RunStatus
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.main import app
from flowmesh_cli.verbs import outputs


@pytest.mark.parametrize(
    ("phase", "code", "options"),
    [
        ("Failed", ExitCode.FAILED, []),
        ("Failed", ExitCode.FAILED, ["--json"]),
        ("Cancelled", ExitCode.CANCELLED, []),
        ("Succeeded", ExitCode.OK, []),
    ],
)
def test_a_download_of_a_failed_run_fails_with_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, phase: str, code: int, options: list[str]
) -> None:
    found: dict[str, Any] = {"answers": None, "scores": None}
    status = RunStatus("u1", "n", "t", phase, 1.0, outputs=found)

    @contextmanager
    def query_fabric(_: object) -> Iterator[None]:
        yield None

    monkeypatch.setattr(outputs, "query_fabric", query_fabric)
    monkeypatch.setattr(outputs, "named_outputs", lambda http, run: (status, found))
    done = CliRunner().invoke(app, ["outputs", "--download", str(tmp_path), *options])
    assert done.exit_code == code
    said = f"run u1 has ended as {phase} without answers, scores"
    assert (said in done.stderr) is bool(code)
    assert ("`fmesh status u1` shows why" in done.stderr) is bool(code)


def test_the_days_of_a_bill_are_named_as_days() -> None:
    done = CliRunner().invoke(app, ["bill", "--since", "yesterday"])
    assert done.exit_code == ExitCode.USAGE
    assert "'yesterday' is not a day: expected 2026-01-31, or 7d for a week ago" in done.stderr
