"""``fmesh why`` and ``explain``: selection of the step, and their texts."""

import re

import pytest
from typer.testing import CliRunner

from flowmesh_api.v1.fabric import WorkerStatus
from flowmesh_api.v1.runs import StepStatus
from flowmesh_api.v1.why import (
    AttemptLine,
    Candidate,
    Explanation,
    PlacedAction,
    ScoredWorker,
    UtilityTerms,
)
from flowmesh_cli.commands.names import run_and_step
from flowmesh_cli.errors import CliError
from flowmesh_cli.main import app
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.why import loading, split_step
from flowmesh_cli.views.placement import show_explanation
from flowmesh_core.protocol.messages import EngineInstanceState, WorkerShape


@pytest.mark.parametrize(
    ("step", "run", "meant"),
    [
        ("sample", "", ("", "sample")),
        ("best/sample", "", ("best", "sample")),
        ("team-a/best/sample", "", ("team-a/best", "sample")),
        ("best/tune[model=org/base]", "", ("best", "tune[model=org/base]")),
        ("tune[model=org/base]", "", ("", "tune[model=org/base]")),
        ("sample", "best", ("best", "sample")),
    ],
)
def test_a_step_may_be_named_with_its_run(step: str, run: str, meant: tuple[str, str]) -> None:
    assert split_step(step, run) == meant


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("sample", "", ""), ("", "sample")),
        (("best", "sample", ""), ("best", "sample")),
        (("sample", "", "best"), ("best", "sample")),
        (("best/sample", "", ""), ("", "best/sample")),
    ],
)
def test_a_step_follows_its_run_or_stands_alone(
    words: tuple[str, str, str], meant: tuple[str, str]
) -> None:
    assert run_and_step(*words) == meant


def test_a_run_that_is_named_twice_is_refused() -> None:
    with pytest.raises(CliError, match="named twice: best and other"):
        run_and_step("best", "sample", "other")


@pytest.mark.parametrize("command", ["why", "explain", "logs", "status"])
def test_h_is_help_and_says_that_a_step_follows_its_run(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "-h"])
    assert shown.exit_code == 0
    assert "STEP" in shown.stdout.partition("\n\n")[0]


def test_help_names_both_ways_to_name_a_step() -> None:
    shown = re.sub(r"\s+", " ", CliRunner().invoke(app, ["why", "--help"]).stdout)
    assert "RUN/STEP" in shown


def worker(name: str, *states: str) -> WorkerStatus:
    lanes = tuple(EngineInstanceState("s", "llm.generate", state, 1, 10) for state in states)
    shape = WorkerShape(name, "local", "cpu", 1024, 1024, 2, 0, {})
    return WorkerStatus(shape, "busy", instances=lanes)


def test_an_engine_counts_as_loading_on_workers_where_no_instance_of_it_is_ready() -> None:
    workers = [worker("a", "loading"), worker("b", "loading", "ready"), worker("c", "starting")]
    assert loading([*workers, worker("d")], "llm.generate") == {"a", "c"}
    assert loading(workers, "data.sql") == set()


TERMS = UtilityTerms(0.5, 0.9, 0.2, 0.1, 0.0, 3.0, 1000)
STEP = StepStatus(path="sample", engine="llm.generate", state="RUNNING")


def explained(
    capsys: pytest.CaptureFixture[str], found: Explanation, loads: set[str] | None = None
) -> str:
    show_explanation(Terminal(as_json=False), found, STEP, loads or set())
    return capsys.readouterr().out


def test_an_engine_that_loads_is_not_shown_as_running(capsys: pytest.CaptureFixture[str]) -> None:
    candidates = (Candidate("local-1", TERMS, True), Candidate("local-2", TERMS, False))
    action = PlacedAction(0, "0123456789ab", "running", ("local-1",), candidates)
    found = Explanation("u", "sample", (0.25, 0.5, 0.25), (action,), 0, ())
    assert "its engine runs" in explained(capsys, found)
    shown = explained(capsys, found, {"local-1"})
    assert "its engine loads" in shown
    assert "its engine runs" not in shown
    assert "an engine would start" in shown


def test_the_weights_are_shown_beside_where_a_step_ran(capsys: pytest.CaptureFixture[str]) -> None:
    placed = (ScoredWorker("local-1", 0.5, 0.9, 0.2, 0.1, 0.0, 3.0, 1000, False),)
    ran = AttemptLine(
        1.0, "sample", 0, "a", "a1", "local-1", "i", "published", 10, 10, placed=placed
    )
    found = Explanation("u", "sample", (0.25, 0.5, 0.25), (), 0, (ran,))
    assert "U = 0.25 throughput - 0.5 cost + 0.25 locality" in explained(capsys, found)
    unknown = Explanation("u", "sample", (0.0, 0.0, 0.0), (), 0, (ran,))
    assert "U = " not in explained(capsys, unknown)
