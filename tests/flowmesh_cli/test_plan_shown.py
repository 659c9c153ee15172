"""The output of ``fmesh plan``: a range, and by step measured figures and ``?`` for all others."""

from pathlib import Path

import msgspec
import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer, fmesh

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_api.v1.plan import Forecast, PlannedStep
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.plan import show

HIT = PlannedStep("inputs.base", "model.import", "hit", actions=1, hits=1)
MEASURED = PlannedStep(
    "sample", "llm.generate", "run", actions=2, batches=1, nanousd=2_000_000, seconds=12.0,
    joules=90.0, worker="local-1", sure="measured",
)  # fmt: skip
GUESSED = PlannedStep(
    "vote", "data.sql", "run", actions=1, batches=1, nanousd=700, seconds=0.02, joules=1.0,
    worker="local-1", sure="guess",
)  # fmt: skip
UNKNOWN = PlannedStep(
    "score", "eval.exact-match", "unknown", nanousd=700, seconds=0.02, sure="guess"
)


def forecast(*steps: PlannedStep) -> Forecast:
    measured = [s for s in steps if s.sure != "guess"]
    return Forecast(
        name="a", namespace="b", steps=steps, actions=sum(s.actions for s in steps),
        hits=sum(s.hits for s in steps), batches=1, nanousd=sum(s.nanousd for s in steps),
        seconds=sum(s.seconds for s in steps), joules=sum(s.joules for s in steps), error=0.25,
        unknown=sum(s.expect == "unknown" for s in steps), scopes=("ns-b",), refusals=(),
        unmeasured=len(steps) - len(measured), least_nanousd=sum(s.nanousd for s in measured),
        least_seconds=sum(s.seconds for s in measured),
        least_joules=sum(s.joules for s in measured),
        low_nanousd=1_400_000, high_nanousd=2_800_000, low_seconds=8.5, high_seconds=17.0,
    )  # fmt: skip


def shown(capsys: pytest.CaptureFixture[str], *steps: PlannedStep) -> dict[str, str]:
    """Returns lines by their first word; the sums under the empty word."""
    show(Terminal(as_json=False), forecast(*steps))
    lines = capsys.readouterr().out.splitlines()
    return {"": lines[-1].strip(), **{line.split()[0]: line for line in lines[1:-1]}}


def test_a_plan_shows_with_whom_results_would_be_shared(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, HIT)["its"].strip() == "its results are shared with no other namespace"
    planned = msgspec.structs.replace(forecast(HIT), scopes=("ns-b", "group-g"))
    for policies, text in (
        ([CachePolicy("p", Sharing.GROUP, "g", ("b", "c"))], "c (group g; cache policy p)"),
        (None, "group g"),
    ):
        show(Terminal(as_json=False), planned, policies)
        assert text in capsys.readouterr().out.splitlines()[1]


def test_a_step_that_was_never_measured_has_no_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(capsys, HIT, GUESSED, UNKNOWN)
    for step in ("vote", "score"):
        assert "$" not in said[step]
        assert "0.0s" not in said[step]
    assert said["vote"].split()[2:] == [
        "run",
        "1",
        "-",
        "1",
        "?",
        "?",
        "not",
        "yet",
        "on",
        "local-1",
    ]
    assert said["score"].split()[2:8] == ["unknown", "?", "?", "?", "?", "?"]
    assert said["inputs.base"].split()[2:] == ["hit", "1", "1", "-", "-", "-"]
    assert said[""] == (
        "2 known actions, 1 hit, ~$0.001400 to ~$0.002800, ~8.5s to 17s (2 steps not measured yet)"
    )


def test_sums_are_shown_as_at_least_if_nothing_bounds_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = shown(capsys, MEASURED, UNKNOWN)
    assert "~$0.002" in said["sample"]
    assert "~12s" in said["sample"]
    assert said[""].endswith("(1 step not measured yet)")
    unbounded = msgspec.structs.replace(forecast(UNKNOWN), high_nanousd=0, high_seconds=0.0)
    show(Terminal(as_json=False), unbounded)
    assert "at least ~$0.001400, at least ~8.5s (1 step" in capsys.readouterr().out
    nowhere = msgspec.structs.replace(unbounded, low_nanousd=0, low_seconds=0.0)
    show(Terminal(as_json=False), nowhere)
    assert "not known: no connected worker can run it" in capsys.readouterr().out


def test_sums_are_shown_as_estimates_if_every_step_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = shown(capsys, HIT, MEASURED)
    assert said[""] == (
        "3 known actions, 1 hit, ~$0.001400 to ~$0.002800, ~8.5s to 17s (all steps measured)"
    )


def test_a_plan_with_only_hits_has_nothing_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(capsys, HIT)
    assert said[""] == "1 known action, 1 hit, nothing to run"


def test_a_plan_names_the_tenants_whose_results_it_searches(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = msgspec.structs.replace(forecast(HIT), scopes=("ns-team-a", "group-friends", "all"))
    show(Terminal(as_json=False), found)
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "b/a (searches results of team-a, group friends, all namespaces)"


@pytest.mark.slow
def test_a_first_plan_has_no_estimates_and_one_after_a_run_uses_measurements(
    tmp_path: Path,
) -> None:
    flows.questions(tmp_path)
    flow = flows.write(tmp_path, "small", flows.scored())
    first = fmesh("plan", flow, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "steps not measured yet" in first.stdout
    assert " to ~$" in first.stdout
    assert fmesh("run", flow, cwd=tmp_path).returncode == 0
    again = fmesh("plan", flow, cwd=tmp_path)
    assert "at least" not in again.stdout
    (other,) = answer("plan", flow, "-n", "team-z", cwd=tmp_path)
    shown_other = fmesh("plan", flow, "-n", "team-z", cwd=tmp_path).stdout
    assert other["unmeasured"] == other["unknown"] > 0
    assert 0 < other["least_nanousd"] < other["nanousd"]
    assert 0 < other["low_nanousd"] < other["high_nanousd"] <= 8 * other["low_nanousd"]
    assert "not measured yet" in shown_other
