"""The soak command resumes, reports violations and shrinks their scenarios."""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from flowmesh_core.errors import InvariantError
from flowmesh_core.serving.route.call_events import AnswerCall, RouterCommand, SendCall
from flowmesh_core.serving.route.call_router import CallRouter
from flowmesh_sim.invariants.checker import Checker
from flowmesh_sim.kernel.violation import violated
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import read_scenario
from flowmesh_sim.soak import passed_seeds as passed_module
from flowmesh_sim.soak import soak as soak_module
from flowmesh_sim.soak.checked_world import WorldOutcome, run_checked_calls, run_checked_world
from flowmesh_sim.soak.passed_seeds import PassedSeeds, code_hash
from flowmesh_sim.soak.random_scenarios import random_document
from flowmesh_sim.soak.shrink import as_yaml, shrunk
from flowmesh_sim.soak.soak import seeds_of, soak

TINY = [34, 73, 126]


def test_seeds_are_a_number_or_a_range() -> None:
    assert seeds_of("3") == [0, 1, 2]
    assert seeds_of("7-9") == [7, 8, 9]
    with pytest.raises(argparse.ArgumentTypeError, match="neither a number"):
        seeds_of("a-b")
    for nothing in ("9-7", "0"):
        with pytest.raises(argparse.ArgumentTypeError, match="names no seed"):
            seeds_of(nothing)


def test_the_frequency_of_checks_does_not_change_the_trace() -> None:
    assert run_checked_world(TINY[0], every=1).trace == run_checked_world(TINY[0], every=50).trace


@pytest.mark.slow
def test_several_processes_find_the_same_violations_as_one() -> None:
    together = sorted(soak(TINY, jobs=2), key=lambda o: o.seed)
    assert together == list(soak(TINY, jobs=1))


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["soak", "--jobs", "1", *arguments])
    soak_module.main()


def test_seeds_that_passed_are_not_simulated_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run(monkeypatch, "--seeds", "73-73")
    assert PassedSeeds(tmp_path / ".cache/soak").seeds() == {73}
    run(monkeypatch, "--seeds", "73-73")
    assert "0 seeds (1 had passed before)" in capsys.readouterr().out
    run(monkeypatch, "--seeds", "73-73", "--fresh")
    assert "1 seeds," in capsys.readouterr().out
    monkeypatch.setattr(passed_module, "code_hash", lambda: "other")
    run(monkeypatch, "--seeds", "73-73")
    assert "1 seeds," in capsys.readouterr().out
    assert [p.name for p in (tmp_path / ".cache/soak").iterdir()] == ["other"]


def test_the_hash_of_the_code_changes_with_a_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "module.py").write_text("A = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(passed_module, "PACKAGES", ("some_package",))
    before = code_hash()
    assert before == code_hash()
    (package / "module.py").write_text("A = 2")
    assert before != code_hash()


def test_a_failing_seed_is_named_and_not_recorded_as_passed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    broken = WorldOutcome(5, "InvariantError: it broke", "", 1, 1, 0)
    monkeypatch.setattr(soak_module, "run_checked_world", lambda _: broken)
    with pytest.raises(SystemExit, match="1"):
        run(monkeypatch, "--seeds", "5-5")
    output = capsys.readouterr().out
    assert "seed 5: InvariantError: it broke" in output
    assert "--shrink 5" in output
    assert PassedSeeds(tmp_path / ".cache/soak").seeds() == set()


def test_kinds_of_breakage_are_the_same_whichever_run_it_is() -> None:
    one, other = (
        WorldOutcome(
            1,
            f"InvariantError: run load0-00000{n}: paid {n}, its ledger says 7 (a.py:3)",
            "",
            1,
            1,
            0,
        )
        for n in (1, 2)
    )
    assert one.kind == other.kind
    assert "its ledger says" in one.kind


def test_a_violation_names_the_code_line_that_found_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*_: Any) -> None:
        violated("run r", "it is wrong")

    monkeypatch.setattr(Checker, "applied", found)
    assert re.search(r"it is wrong \(test_soak\.py:\d+\)$", run_checked_world(73).broken)


def test_a_violation_is_shrunk_to_a_minimal_scenario(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from flowmesh_core.machine import attempts

    real = attempts.failed

    def failed(state: Any, worker: Any, attempt: Any, failure: Any, now_s: float) -> None:
        if failure.kind == "lost":
            state.book.fabric_nanousd += 1
        real(state, worker, attempt, failure, now_s)

    monkeypatch.setattr(attempts, "failed", failed)
    before = {
        "name": "large",
        "seed": 3,
        "pools": [{"name": n, "device": "cpu", "cpus": 8} for n in ("a", "b")],
        "load": [{"shapes": ["steps", "noop-flat"], "runs": 3, "rows": 20}] * 2,
        "faults": [
            {"kind": kind, "atS": 2.0, "forS": 1.0, "worker": worker}
            for kind, worker in (
                ("slow", ""),
                ("crash", "a-0001"),
                ("crash", "b-0001"),
                ("cut", ""),
            )
        ],
        "sharing": "group",
        "control": {"watchdogS": 5.0, "syncIntervalS": 0.5},
    }
    after = shrunk(before)
    assert [f["kind"] for f in after["faults"]] == ["crash"]
    assert [len(after[k]) for k in ("pools", "load")] == [1, 1]
    assert after["load"][0]["shapes"] == ["steps"]
    assert after["load"][0]["runs"] == 1
    assert not after.keys() & {"sharing", "control"}
    path = tmp_path / "small.yaml"
    path.write_text(as_yaml(after))
    with pytest.raises(InvariantError, match="attempts have"):
        Simulation(read_scenario(path), checker=Checker(every=1)).run()


def test_a_scenario_without_a_violation_cannot_be_shrunk() -> None:
    with pytest.raises(ValueError, match="breaks no invariant"):
        shrunk(random_document(TINY[1]))


@pytest.mark.slow
def test_worlds_of_services_with_calls_break_nothing() -> None:
    """No call is lost, none is answered twice, and the accounts add up to the bill."""
    broken = [
        o.broken for o in soak(seeds_of("60"), jobs=1, simulate=run_checked_calls) if o.broken
    ]
    assert broken == []


def test_a_second_answer_breaks_a_world_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotage of the test above: a call that is sent again is answered too."""
    lost = CallRouter._lost

    def and_answers(self: CallRouter, hub: str) -> list[RouterCommand]:
        commands = lost(self, hub)
        sent = [c.call_id for c in commands if isinstance(c, SendCall)]
        return [*commands, *(AnswerCall(call_id, "lost") for call_id in sent)]

    monkeypatch.setattr(CallRouter, "_lost", and_answers)
    assert any("answered again" in run_checked_calls(seed).broken for seed in range(40))
