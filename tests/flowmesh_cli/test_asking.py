"""Queries and changes on one running fabric: their texts and exit codes."""

import json
import subprocess
from typing import Any

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import COMMAND, answer, environment, fmesh, until
from tests.flowmesh_cli.shared_fabric import SharedFabric
from tests.flowmesh_cli.terminals import on_a_terminal

from flowmesh_cli.exit_codes import ExitCode

pytestmark = pytest.mark.slow


def printing(text: str) -> dict[str, Any]:
    code = f"def main():\n  print({text!r})\n  return [{{'said': {text!r}}}]"
    query = {"query": "select said from rows"}
    steps = [
        {"name": "say", "uses": "code.python", "with": {"code": code}},
        {"name": "quiet", "uses": "data.sql", "inputs": {"rows": "say.rows"}, "with": query},
    ]
    return {"steps": steps, "outputs": {"said": "quiet.rows"}}


@pytest.fixture(scope="module", autouse=True)
def printed(fabric: SharedFabric) -> None:
    """Runs a workflow to its end."""
    fabric.answer(printing("hello"), name="printed")


def test_an_ended_run_cannot_be_changed(fabric: SharedFabric) -> None:
    for command in (["amend", "printed", "--priority", "3"], ["cancel", "printed"]):
        done = fmesh(*command, "--json", cwd=fabric.folder)
        assert done.returncode == ExitCode.REFUSED
        error = json.loads(done.stdout)["error"]
        assert error["kind"] == "refused"
        assert "Succeeded" in error["message"]


@pytest.mark.parametrize(
    "command",
    [
        ["status", "nobody"],
        ["watch", "nobody"],
        ["logs", "nobody"],
        ["cancel", "nobody"],
        ["amend", "nobody", "--suspend"],
        ["receipt", "nobody"],
        ["outputs", "nobody"],
        ["why", "say", "--run", "nobody"],
        ["why", "sya", "--run", "printed"],
        ["explain", "sya", "--run", "printed"],
        ["logs", "printed", "--step", "sya"],
        ["lineage", "printed/nothing"],
        ["lineage", "nothing"],
    ],
)
def test_a_missing_object_is_reported_as_not_found(
    fabric: SharedFabric, command: list[str]
) -> None:
    done = fmesh(*command, cwd=fabric.folder)
    assert done.returncode == ExitCode.NOT_FOUND, done.stderr
    assert "error: " in done.stderr
    assert "remedy: " in done.stderr


@pytest.mark.parametrize(
    ("words", "reason", "remedy"),
    [
        ("printed said", "2 names: expected one artifact", "name printed/said"),
        ("printed say", "2 names: expected one artifact", "name printed/say"),
        ("UID", "is a run: expected one of its artifacts", "name UID/said"),
        ("BEGINNING", "is a run: expected one of its artifacts", "name BEGINNING/said"),
        ("said", "is an output of run UID", "name UID/said"),
        ("say.rows", "is made by run UID", "name UID/say.rows"),
        ("say", "is a step of run UID", "name UID/say.rows"),
        ("printed/say", "'say' is a step", "name UID/say.rows"),
    ],
)
def test_lineage_of_a_name_without_its_run_or_port_says_what_to_write(
    fabric: SharedFabric, words: str, reason: str, remedy: str
) -> None:
    uid = answer("status", "printed", cwd=fabric.folder)["uid"]
    known = {"UID": uid, "BEGINNING": uid[:-2]}
    given, reason, remedy = (
        " ".join(_replaced(part, known) for part in text.split(" "))
        for text in (words, reason, remedy)
    )
    done = fmesh("lineage", *given.split(" "), cwd=fabric.folder)
    assert done.returncode in (ExitCode.USAGE, ExitCode.NOT_FOUND), done.stderr
    assert reason in done.stderr
    assert remedy in done.stderr


def _replaced(text: str, known: dict[str, str]) -> str:
    for name, value in known.items():
        text = text.replace(name, value)
    return text


def test_logs_show_why_there_are_none(fabric: SharedFabric) -> None:
    assert "step quiet printed nothing" in logs(fabric, "printed", "quiet")
    fabric.answer(printing("hello"), name="again")
    assert "step say was not run: its results were reused" in logs(fabric, "again", "say")
    flow = flows.write(fabric.folder, "long", flows.sleeping(600))
    uid = answer("submit", flow, cwd=fabric.folder)[0]["uid"]
    until(lambda: "running" in fmesh("status", uid, cwd=fabric.folder).stdout)
    assert "step rest has printed nothing yet" in logs(fabric, uid, "rest")
    assert answer("cancel", uid, cwd=fabric.folder)["phase"] == "Cancelled"


def logs(fabric: SharedFabric, run: str, step: str) -> str:
    done = fmesh("logs", run, "--step", step, cwd=fabric.folder)
    assert (done.returncode, done.stdout) == (0, "")
    return done.stderr


def test_explaining_a_hit_shows_that_it_was_not_run(fabric: SharedFabric) -> None:
    fabric.answer(printing("hello"), name="hit")
    shown = fmesh("explain", "say", "--run", "hit", cwd=fabric.folder).stdout
    assert shown.splitlines()[-1].startswith("  it was not run: its results were reused")


def test_purging_requires_a_typed_confirmation(fabric: SharedFabric) -> None:
    for typed, code, said in (
        (b"n\n", ExitCode.INTERRUPTED, "nothing was purged"),
        (b"\x03", ExitCode.INTERRUPTED, "nothing was purged"),
        (b"y\n", ExitCode.OK, "purged 1 result"),
    ):
        purge = ("cache", "purge", "--engine", "code.python")
        with on_a_terminal(*purge, cwd=fabric.folder) as terminal:
            terminal.until("[y/N]")
            terminal.type(typed)
            terminal.until(said)
            assert terminal.end() == code
    fabric.answer(printing("hello"), name="anew")
    assert "hello" in fmesh("logs", "anew", "--step", "say", cwd=fabric.folder).stdout


def test_cancelling_the_latest_run_asks_for_confirmation_on_a_terminal(
    fabric: SharedFabric,
) -> None:
    flow = flows.write(fabric.folder, "endless", flows.sleeping(600))
    uid = answer("submit", flow, cwd=fabric.folder)[0]["uid"]
    for typed, code, said in (
        (b"n\n", ExitCode.INTERRUPTED, "nothing was cancelled"),
        (b"y\n", ExitCode.OK, f"{uid} Cancelled"),
    ):
        with on_a_terminal("cancel", cwd=fabric.folder) as terminal:
            terminal.until(f"endless ({uid})? [y/N]")
            terminal.type(typed)
            terminal.until(said)
            assert terminal.end() == code
    other = answer("submit", flow, cwd=fabric.folder)[0]["uid"]
    assert answer("cancel", cwd=fabric.folder)["uid"] == other  # a program is not asked


def test_concurrent_cancellations_of_one_run_leave_no_running_action(fabric: SharedFabric) -> None:
    step = {
        "name": "nap",
        "uses": "test.sleep",
        "matrix": {"n": list(range(20))},
        "with": {"seconds": 60, "value": "${matrix.n}"},
    }
    flow = flows.write(fabric.folder, "many", {"steps": [step], "outputs": {}})
    (accepted,) = answer("submit", flow, cwd=fabric.folder)
    uid = accepted["uid"]
    until(lambda: fabric.call("GET", "/v1/fabric")["running_actions"] >= 20)
    together = [
        subprocess.Popen(
            [*COMMAND, "cancel", uid],
            cwd=fabric.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        for _ in range(3)
    ]
    ended = {process.wait(300): process.communicate() for process in together}
    assert set(ended) <= {ExitCode.OK, ExitCode.REFUSED}
    assert ExitCode.OK in ended
    assert fabric.phase(uid) == "Cancelled"
    again = fmesh("cancel", uid, cwd=fabric.folder)
    assert again.returncode == ExitCode.REFUSED
    assert f"run {uid} has already ended (Cancelled)" in again.stderr
    until(lambda: fabric.call("GET", "/v1/fabric")["running_actions"] == 0)
    fabric.still_serves()
