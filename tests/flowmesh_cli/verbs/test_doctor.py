"""``fmesh doctor`` shows every check with its remedy, and is refused only by what stops work."""

import json
from pathlib import Path

from typer.testing import CliRunner

from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.main import app
from flowmesh_worker.engines.code.sandbox_report import SandboxReport


def doctor(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["doctor", *map(str, words)])
    return done.exit_code, done.stdout


def test_a_lost_key_is_a_problem_and_the_other_checks_are_shown_too(tmp_path: Path) -> None:
    code, shown = doctor("--state-dir", tmp_path / "new", "--json")
    found = json.loads(shown)
    names = [check["name"] for check in found["checks"]]
    assert (code, found["problems"]) == (ExitCode.OK, 0)
    assert {"python", "sandbox", "cgroup", "port", "disk", "owner", "master key"} <= set(names)
    assert list(tmp_path.iterdir()) == []
    used = tmp_path / "used"
    (used / "keys").mkdir(parents=True)
    (used / "keys" / "current").write_text("{}")
    used.chmod(0o700)
    code, shown = doctor("--state-dir", used)
    assert code == ExitCode.REFUSED
    lines = shown.splitlines()
    [problem] = [n for n, line in enumerate(lines) if line.startswith("problem ")]
    assert "the master key is missing" in lines[problem]
    assert lines[problem + 1].split()[:3] == ["remedy:", "restore", "it"]
    assert lines[-1].startswith("1 problem, ")


def test_the_sandbox_is_tried_in_a_process_of_its_own() -> None:
    from flowmesh_cli.doctor.machine import sandbox_report

    found = sandbox_report()
    assert isinstance(found, SandboxReport)
    assert found.level in ("userns", "landlock", "weak")
    assert found.groups_version in (0, 1, 2)
