"""Short texts: lines of progress, lists of runs, explanations of steps."""

from typing import Any

import msgspec
import pytest

from flowmesh_api.v1.fabric import FabricStatus
from flowmesh_api.v1.runs import RunStatus, StepStatus
from flowmesh_api.v1.why import AttemptLine, Why, WhyPart
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.plan import place
from flowmesh_cli.views import live_progress
from flowmesh_cli.views.plain_progress import LineProgress
from flowmesh_cli.views.runs import show_fabric, show_run, show_summaries
from flowmesh_cli.views.steps import result, titles_of
from flowmesh_cli.views.why import show_story
from flowmesh_control.records.run_records import summary_of
from flowmesh_core.units import Digest

WAITS = StepStatus(
    path="first",
    engine="test.noop",
    state="READY",
    reason="no-workers",
    message="no worker is connected; start one or raise a pool's maximum",
)


def run(**changes: Any) -> RunStatus:
    given: dict[str, Any] = {"phase": "Running", "created_s": 100.0, **changes}
    return RunStatus("nap-1", "nap", "team-a", **given)


def test_a_list_of_runs_distinguishes_completed_steps_from_otherwise_ended_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = run(phase="Failed", counts={"FAILED": 1, "CANCELLED": 2, "SKIPPED": 1})
    going = run(counts={"COMPLETED": 3, "RUNNING": 1})
    show_summaries(Terminal(as_json=False), [summary_of(failed), summary_of(going)])
    shown = capsys.readouterr().out
    assert "0/4, 1 failed, 1 skipped, 2 cancelled" in shown
    assert " 3/4 " in shown


def test_a_missing_worker_is_not_reported_while_workers_start() -> None:
    said: list[str] = []
    progress = LineProgress(said.append)
    progress.update([run(steps=(WAITS,))], None, 100.0)
    assert not [line for line in said if "no worker" in line]
    progress.update([run(steps=(WAITS,))], None, 111.0)
    assert [line for line in said if "no worker is connected" in line]


def test_live_progress_shows_a_step_without_a_worker_as_waiting(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Terminal(as_json=False).out.print(live_progress.picture([run(steps=(WAITS,))], None, 101.0))
    shown = capsys.readouterr().out
    assert "waits for a worker" in shown
    assert "pool's maximum" not in shown


@pytest.mark.parametrize(
    ("phase", "shown"),
    [("running", "running on local-1"), ("loading", "running (loading) on local-1")],
)
def test_why_reports_once_that_an_action_runs(
    capsys: pytest.CaptureFixture[str], phase: str, shown: str
) -> None:
    attempt = {"id": "a", "worker": "local-1", "phase": phase}
    part = WhyPart(0, "ns-a", "0123456789abcdef", "running", ("nap-1",), (attempt,))
    step = StepStatus(path="first", engine="test.noop", state="RUNNING")
    story = Why("nap-1", step, (), (), (part,), 0, (), (), {})
    show_story(Terminal(as_json=False), story, {})
    assert f"action 0 (0123456789ab) {shown}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("doing", "shown"), [("loading", "is starting\n"), ("running", "is running\n")]
)
def test_why_says_that_a_step_starts_while_its_engine_loads(
    capsys: pytest.CaptureFixture[str], doing: str, shown: str
) -> None:
    step = StepStatus("first", "test.noop", "RUNNING", workers=("local-1",), doing=doing)
    show_story(Terminal(as_json=False), Why("r", step, (), (), (), 0, (), (), {}), {})
    assert capsys.readouterr().out == f"first (test.noop) {shown}"


def test_every_column_of_attempts_has_a_heading(capsys: pytest.CaptureFixture[str]) -> None:
    step = StepStatus("first", "test.noop", "FAILED")
    line = AttemptLine(1.0, "first", 0, Digest("a"), "e-1", "w", "i", "crashed", 2, 1, sharers=2)
    show_story(Terminal(as_json=False), Why("r", step, (), (), (), 0, (), (line,), {}), {})
    heading = capsys.readouterr().out.splitlines()[1]
    assert heading.split()[-3:] == ["paid", "share", "message"]


def test_a_cancelled_step_is_shown_as_cancelled_once(capsys: pytest.CaptureFixture[str]) -> None:
    step = StepStatus(path="first", engine="test.noop", state="CANCELLED", reason="cancelled")
    stopped = run(phase="Cancelled", steps=(step, msgspec.structs.replace(step, reason="budget")))
    show_run(Terminal(as_json=False), stopped, 101.0)
    lines = [line for line in capsys.readouterr().out.splitlines() if "test.noop" in line]
    assert [line.split()[-1] for line in lines] == ["cancelled", "budget"]
    assert lines[0].count("cancelled") == 1
    show_story(Terminal(as_json=False), Why("r", step, (), (), (), 0, (), (), {}), {})
    assert capsys.readouterr().out == "first (test.noop) is cancelled\n"


def test_runs_that_share_work_are_shown_by_name_if_known() -> None:
    taker = StepStatus(
        path="sample", engine="test.noop", state="COMPLETED", shared_with=("ask-7b18", "gone-1")
    )
    giver = RunStatus("ask-7b18", "ask", "team-b", "Running", 100.0)
    said: list[str] = []
    LineProgress(said.append).update([run(steps=(taker,)), giver], None, 100.0)
    assert [line for line in said if line.endswith("shared with team-b/ask, gone-1")]


def test_runs_with_the_same_name_are_distinguished_by_their_uids() -> None:
    one, other = run(), msgspec.structs.replace(run(), uid="nap-2")
    assert result_of_sharing_with([one, other]) == "shared with team-a/nap (nap-2)"


def result_of_sharing_with(runs: list[RunStatus]) -> str:
    step = StepStatus(
        path="first", engine="test.noop", state="COMPLETED", shared_with=(runs[-1].uid,)
    )
    return result(step, titles_of(runs))


def test_the_hits_of_the_fabric_are_shown_by_kind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fabric = FabricStatus(
        epoch=1, workers=1, ready_actions=0, running_actions=0, bill_nanousd=0,
        receipts_nanousd=0, fabric_nanousd=0, unsettled_nanousd=0, saved_nanousd=0, executed=2,
        hits_published=1, hits_in_flight=3, hits_step_level=7,
    )  # fmt: skip
    show_fabric(Terminal(as_json=False), fabric)
    assert "11 hits (1 published, 3 in flight, 7 of whole steps)" in capsys.readouterr().out


def test_the_worker_that_only_serves_a_plan_is_shown_without_a_name() -> None:
    assert place("local-plan-1") == "on a local worker"
    assert place("local-2") == "on local-2"
    assert place("") == ""


def test_the_uid_of_a_run_is_never_folded_however_narrow_the_terminal_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = RunStatus("word-problems-5d4790b1", "word-problems", "team-c", "Cancelled", 100.0)
    failed = msgspec.structs.replace(long, counts={"COMPLETED": 1, "CANCELLED": 3}, hits=12)
    show_summaries(Terminal(as_json=False), [summary_of(failed)])
    shown = capsys.readouterr().out
    assert "word-problems-5d4790b1" in shown
    assert max(map(len, shown.splitlines())) <= 80


def lines_of(*reports: tuple[float, str], **changes: Any) -> list[str]:
    """The lines about a running step whose attempt reports these phases at these times."""
    said: list[str] = []
    lines = LineProgress(said.append)
    for at_s, doing in reports:
        lines.update([run(steps=(running(doing, **changes),))], None, at_s)
    return [line.partition(" first ")[2] for line in said[1:]]


def running(doing: str, **changes: Any) -> StepStatus:
    given = {"workers": ("local-1",), "doing": doing, **changes}
    return StepStatus(path="first", engine="test.noop", state="RUNNING", **given)


def test_a_step_is_starting_while_its_engine_loads_and_running_once_it_runs() -> None:
    reports = ((100.0, ""), (100.1, "fetching"), (100.5, "loading"), (101.6, "loading"))
    said = lines_of(*reports, (105.0, "running"), (106.0, "running"))
    assert said == ["starting: loading the engine on local-1", "running: on local-1"]


def test_a_step_that_begins_at_once_has_no_line_about_its_start() -> None:
    reports = ((100.0, ""), (100.2, "fetching"), (100.6, "queued"), (100.8, "running"))
    assert lines_of(*reports) == ["running: on local-1"]


def test_a_long_start_is_repeated_with_what_it_does() -> None:
    said = lines_of((100.0, "fetching"), (101.0, "fetching"), (111.0, "fetching"))
    assert said == ["starting: fetching inputs on local-1"] * 2


def test_a_step_that_has_done_something_runs_while_another_engine_of_it_loads() -> None:
    assert lines_of((100.0, "loading"), done=1, actions=2) == [
        "running: 1/2, loading the engine on local-1"
    ]


@pytest.mark.parametrize(("doing", "word"), [("loading", "starting"), ("running", "running")])
def test_the_table_of_a_run_says_that_a_step_is_starting(
    doing: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_run(Terminal(as_json=False), run(steps=(running(doing),)), 110.0)
    assert f"test.noop  {word}" in capsys.readouterr().out
