"""What commands say of runs that have ended, or have not, where they need the other."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from flowmesh_api.v1.enums import Phase
from flowmesh_api.v1.runs import RunStatus, StepStatus
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.main import app
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs import manage_runs, run_summary, verify
from flowmesh_cli.views.runs import describe_output


def asked(monkeypatch: pytest.MonkeyPatch, command: str, phase: Phase) -> Result:
    """Runs a command on a run in this phase; asking the fabric for more than its status fails."""
    status = RunStatus("u1", "n", "t", phase, 1.0)

    @contextmanager
    def query_fabric(_: object) -> Iterator[object]:
        yield SimpleNamespace(get=lambda path, kind: status)

    for module in (manage_runs, verify):
        monkeypatch.setattr(module, "query_fabric", query_fabric)
    monkeypatch.setattr(manage_runs, "find_run", lambda http, run: "u1")
    monkeypatch.setattr(verify, "find_run_and_output", lambda http, run: ("u1", ""))
    return CliRunner().invoke(app, [command, "u1"])


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED])
def test_a_run_that_has_ended_is_not_resumed(monkeypatch: pytest.MonkeyPatch, phase: Phase) -> None:
    done = asked(monkeypatch, "resume", phase)
    assert done.exit_code == ExitCode.USAGE
    assert f"u1: the run has already ended ({phase})" in done.stderr
    assert "run its workflow again" in done.stderr


def test_a_run_that_goes_on_is_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    done = asked(monkeypatch, "verify", Phase.RUNNING)
    assert done.exit_code == ExitCode.USAGE
    assert "u1: it has not ended, so it has nothing to verify yet" in done.stderr
    assert "`fmesh watch u1`" in done.stderr


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (Phase.RUNNING, "none (its step has not completed)"),
        (Phase.FAILED, "none (the run failed)"),
        (Phase.CANCELLED, "none (the run was cancelled)"),
        (Phase.SUCCEEDED, "null (its step was skipped)"),
    ],
)
def test_an_output_that_is_not_there_says_why(phase: Phase, words: str) -> None:
    assert describe_output(None, RunStatus("u1", "n", "t", phase, 1.0)) == words


@pytest.mark.parametrize(
    ("executed", "in_flight", "words"),
    [
        (1, 0, "shared: 1 action ran in place of 3; 2 had been published, 0 were running"),
        (0, 2, "shared: 0 actions ran in place of 2; 0 had been published, 2 were running"),
        (0, 0, "shared: nothing ran, as all results had been published"),
    ],
)
def test_what_ran_is_compared_with_what_was_shared(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    executed: int,
    in_flight: int,
    words: str,
) -> None:
    step = StepStatus(path="a", engine="test.noop", state="COMPLETED", in_flight=in_flight)
    run = RunStatus("u1", "n", "t", Phase.SUCCEEDED, 1.0, executed=executed, hits=2, steps=(step,))
    http: Any = SimpleNamespace(where_allowed=lambda path, kind: None)
    for name in ("read_receipt", "show_sharing", "sharing", "titles_of", "all_runs"):
        monkeypatch.setattr(run_summary, name, lambda *_: None)
    run_summary._show_sharing(Terminal(as_json=False), http, [run])
    assert words in capsys.readouterr().out
