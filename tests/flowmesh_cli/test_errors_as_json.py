"""``--json`` where a command fails: one document with the error, for every command."""

import inspect
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import fmesh
from typer.testing import CliRunner

from flowmesh_api.v1.problems import Problem
from flowmesh_cli.errors import CliError, FilesError, guarded
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.main import app
from flowmesh_core.errors import FlowMeshError, SpecError

FIELDS = {"kind", "where", "message", "remedy", "problems", "exit_code"}


def error_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found = json.loads(done.stdout)
    assert set(found) == {"error"}
    assert set(found["error"]) == FIELDS
    assert found["error"]["exit_code"] == done.returncode
    return found["error"]


def ending(error: BaseException) -> dict[str, Any]:
    commands = typer.Typer(pretty_exceptions_enable=False)

    @commands.command()
    @guarded
    def command(json: bool = True) -> None:
        raise error

    result = CliRunner().invoke(commands)
    found = json.loads(result.stdout)["error"]
    assert found["exit_code"] == result.exit_code
    assert set(found) == FIELDS
    return found


@pytest.mark.parametrize(
    ("error", "kind", "message", "code"),
    [
        (CliError("is closed", ExitCode.REFUSED), "refused", "is closed", 4),
        (CliError("gone", ExitCode.NO_FABRIC), "no-fabric", "gone", 3),
        (FilesError(["a.yaml:1:2: kind: is required"]), "usage", "1 problem; nothing was", 2),
        (SpecError([Problem("spec.x", "no")]), "usage", "no", 2),
        (FlowMeshError("broken"), "failed", "broken", 1),
        (ZeroDivisionError("x"), "internal", "ZeroDivisionError: x", 70),
        (KeyboardInterrupt(), "interrupted", "interrupted", 130),
        (typer.Abort(), "interrupted", "interrupted", 130),
    ],
)
def test_every_kind_of_error_is_one_document(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, kind: str, message: str, code: int
) -> None:
    monkeypatch.delenv("FMESH_DEBUG", raising=False)
    found = ending(error)
    assert (found["kind"], found["exit_code"]) == (kind, code)
    assert message in found["message"]


def test_the_document_has_location_remedy_and_every_problem() -> None:
    found = ending(CliError("is closed", ExitCode.REFUSED, where="the door", remedy="knock"))
    assert (found["where"], found["remedy"], found["problems"]) == ("the door", "knock", [])
    lines = ["a.yaml:1:2: kind: is required", "a.yaml:3:1: x: unknown"]
    assert ending(FilesError(lines))["problems"] == lines
    assert ending(SpecError([Problem("spec.x", "no")]))["problems"] == ["spec.x: no"]


def commands(of: typer.Typer) -> Iterator[Any]:
    yield from (command.callback for command in of.registered_commands)
    for group in of.registered_groups:
        assert group.typer_instance is not None
        yield from commands(group.typer_instance)


def test_every_command_accepts_json() -> None:
    without = [c.__name__ for c in commands(app) if "json" not in inspect.signature(c).parameters]
    assert without == []


def test_an_invalid_file_a_missing_fabric_and_a_usage_error_are_json_documents(
    tmp_path: Path,
) -> None:
    spec = flows.scored()
    spec["steps"][1]["uses"] = "eval.exact-mtch"
    done = fmesh("validate", flows.write(tmp_path, "bad", spec), "--json", cwd=tmp_path)
    problems = error_of(done)["problems"]
    assert any("did you mean 'eval.exact-match'" in line for line in problems)
    assert "did you mean 'eval.exact-match'" in done.stderr
    assert error_of(fmesh("status", "--json", cwd=tmp_path))["kind"] == "no-fabric"
    wrong = error_of(fmesh("status", "--bogus", "--json", cwd=tmp_path))
    assert (wrong["kind"], wrong["message"]) == ("usage", "No such option: --bogus")
