"""A file of the wrong kind is refused with the command that takes it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.main import app

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize(
    ("command", "file", "reason", "remedy"),
    [
        ("serve", "best-of-four.yaml", "a workflow, not a service", "`fmesh run {}`"),
        ("serve", "cache-policy.yaml", "a cache policy, not a", "`fmesh policies set {}`"),
        ("run", "questions.jsonl", "rows or batch requests, not a workflow", "`fmesh plan FILE`"),
        (
            "submit",
            "questions.jsonl",
            "rows or batch requests, not a",
            "dataset: ./questions.jsonl",
        ),
    ],
)
def test_a_file_of_another_kind_is_refused_with_its_command(
    tmp_path: Path, command: str, file: str, reason: str, remedy: str
) -> None:
    path = EXAMPLES / file
    done = CliRunner().invoke(app, [command, str(path), "--state-dir", str(tmp_path)])
    assert done.exit_code == ExitCode.USAGE
    assert f"error: {path}: {reason}" in done.stderr
    assert remedy.format(path) in done.stderr
