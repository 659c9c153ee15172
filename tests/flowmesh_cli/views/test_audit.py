"""Audits on real processes: reproducible, drifted and missing results, and a killed owner."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer, end_workers, fmesh, owner, started, until
from tests.flowmesh_cli.shared_fabric import SharedFabric, shared_fabric

from flowmesh_cli.exit_codes import ExitCode

pytestmark = pytest.mark.slow


def drifting() -> dict[str, Any]:
    """Returns a workflow: two families of an irreproducible engine, a step after one of them."""
    return {
        "steps": [
            {"name": "one", "uses": "test.drift", "with": {"family": "a"}},
            {"name": "then", "uses": "test.noop", "inputs": {"after": "one.metrics"}},
            {"name": "other", "uses": "test.drift", "with": {"family": "b"}},
        ],
        "outputs": {"one": "one.metrics", "other": "other.metrics"},
    }


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedFabric]:
    with shared_fabric(tmp_path_factory.mktemp("audited")) as found:
        yield found


def audit(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = fmesh("audit", *arguments, "--json", cwd=folder)
    return done.returncode, json.loads(done.stdout)


def of_step(report: dict[str, Any], step: str) -> list[dict[str, Any]]:
    return [f for f in report["findings"] if f["check"]["step"] == step]


def metric(folder: Path, line: str) -> float:
    """Returns a value of ``/metrics`` by name and labels."""
    known = owner(folder)
    request = urllib.request.Request(
        known["url"] + "/metrics", headers={"Authorization": f"Bearer {known['token']}"}
    )
    with urllib.request.urlopen(request) as found:
        text = found.read().decode()
    return float(next(la for la in text.splitlines() if la.startswith(line)).rpartition(" ")[2])


def test_an_audit_of_an_honest_run_finds_no_difference_and_its_run_is_charged(
    fabric: SharedFabric,
) -> None:
    flows.questions(fabric.folder)
    spec = flows.scored()
    marked = {"name": "mark", "uses": "test.map", "inputs": {"rows": "reply.rows"}}
    # What `again` is made of is no output: it stands nowhere but in the records of `mark`.
    again = {"name": "again", "uses": "test.map", "inputs": {"rows": "mark.rows"}}
    spec["steps"] += [marked, {**again, "with": {"output": "twice"}}]
    run = fabric.answer(spec, "honest")
    code, report = audit(fabric.folder, "honest", "--sample", "100%")
    assert (code, report["cut_off"]) == (0, "")
    assert report["counts"] == {
        "same": run["executed"],
        "differs": 0,
        "failed": 0,
        "not-checkable": 0,
    }
    assert {f["check"]["engine"] for f in report["findings"]} == {
        "data.sql",
        "eval.exact-match",
        "test.map",
    }
    receipt = answer("receipt", report["uid"], cwd=fabric.folder)
    assert receipt["audit_of"] == run["uid"]
    assert receipt["paid_nanousd"] == report["paid_nanousd"] > 0
    book = answer("receipt", "--all", cwd=fabric.folder)
    paid = sum(r["paid_nanousd"] for r in book["receipts"])
    status = book["fabric"]
    assert paid + status["fabric_nanousd"] + status["unsettled_nanousd"] == status["bill_nanousd"]
    assert answer("status", cwd=fabric.folder)["uid"] == run["uid"], "an audit is not the latest"
    down = answer("lineage", "honest/answers", "--down", cwd=fabric.folder)
    assert {d["uid"] for d in down["derivations"]} == {run["uid"]}, "an audit makes no lineage"


def test_results_that_do_not_repeat_are_found_quarantined_and_recomputed(
    fabric: SharedFabric,
) -> None:
    folder = fabric.folder
    first = fabric.answer(drifting(), "drift")
    assert fabric.answer(drifting(), "drift")["hits"] == 3
    kept = answer("cache", "stats", cwd=folder)["cache"]["scopes"]
    code, report = audit(folder, first["uid"], "--sample", "100%")
    assert code == ExitCode.FAILED
    assert report["counts"]["differs"] == 2
    assert [f["verdict"] for f in of_step(report, "then")] == ["same"]
    assert len(report["quarantined"]) == 2
    assert answer("cache", "stats", cwd=folder)["cache"]["scopes"] == kept, "nothing is published"
    [found] = of_step(report, "other")
    assert found["again"]["metrics"] != found["check"]["outputs"]["metrics"]
    assert found["again_by"]["worker"] == found["check"]["published_by"]["worker"]
    assert found["again_by"]["libraries"]["python"]

    released = answer("audit", "--release", found["check"]["signature_class"][:12], cwd=folder)
    assert not released["active"]
    second = fabric.answer(drifting(), "drift")
    outputs = {n: o["digest"] for n, o in second["outputs"].items()}
    assert outputs["other"] == first["outputs"]["other"]["digest"], "released: it hits again"
    assert outputs["one"] != first["outputs"]["one"]["digest"], "quarantined: it ran again"
    assert (second["executed"], second["hits"]) == (2, 1), "`then` has another input now"
    third = fabric.answer(drifting(), "drift")
    assert {n: o["digest"] for n, o in third["outputs"].items()} == outputs
    assert third["hits"] == 3, "what was made since is found"

    assert metric(folder, 'flowmesh_audit_actions_total{verdict="differs"}') == 2
    assert metric(folder, "flowmesh_audit_quarantined ") == 1
    [entry] = answer("audit", "--list", cwd=folder)["quarantine"]
    assert (entry["run_uid"], entry["step"], entry["bump"]) == (first["uid"], "one", 1)
    assert "in quarantine: 1 signature class" in fmesh("cache", "stats", cwd=folder).stdout

    again = audit(folder, third["uid"], "--sample", "100%", "--seed", "1")[1]
    bumps = {e["step"]: e["bump"] for e in answer("audit", "--list", cwd=folder)["quarantine"]}
    assert again["counts"]["differs"] == 2
    assert bumps == {"one": 2, "other": 2}, "a bump never comes again"


def test_a_missing_result_is_reported_and_does_not_fail_the_audit(fabric: SharedFabric) -> None:
    fabric.answer(flows.sleeping(0, "gone"), "gone")
    purge = ("cache", "purge", "-n", "team-a", "--engine", "test.sleep", "-y")
    assert answer(*purge, cwd=fabric.folder)["deleted"] >= 1
    code, report = audit(fabric.folder, "gone", "--sample", "100%")
    assert (code, report["counts"]["same"], report["counts"]["not-checkable"]) == (0, 1, 1)
    [unchecked] = report["order"]["unchecked"]
    assert (unchecked["step"], "record is missing" in unchecked["reason"]) == ("rest", True)


@pytest.fixture(scope="module")
def some(fabric: SharedFabric) -> None:
    """Runs a workflow to its end."""
    fabric.answer(flows.sleeping(0), "some")


@pytest.mark.usefixtures("some")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("nothing",), ExitCode.NOT_FOUND),
        (("--sample", "0%"), ExitCode.USAGE),
        (("--sample", "some"), ExitCode.USAGE),
        (("--release", "00ff"), ExitCode.NOT_FOUND),
    ],
)
def test_a_run_that_cannot_be_audited_ends_with_its_exit_code(
    fabric: SharedFabric, arguments: tuple[str, ...], code: ExitCode
) -> None:
    done = fmesh("audit", *arguments, cwd=fabric.folder)
    assert done.returncode == code, done.stderr
    assert "remedy: " in done.stderr


def test_an_audit_whose_owner_is_killed_continues_and_its_quarantine_remains(
    tmp_path: Path,
) -> None:
    spec = drifting()
    spec["steps"][1] = {"name": "nap", "uses": "test.sleep", "with": {"seconds": 3}}
    flow = flows.write(tmp_path, "drift", spec)
    first = answer("run", flow, cwd=tmp_path)["runs"][0]
    with started("audit", "drift", "--sample", "100%", cwd=tmp_path) as killed:
        until(lambda: "nap running" in killed.said and "one completed" in killed.said)
        killed.kill()
    try:
        done = fmesh("audit", "drift", "--sample", "100%", "--json", cwd=tmp_path)
    finally:
        end_workers(tmp_path)
    assert "resuming audit" in done.stderr, done.stderr
    report = json.loads(done.stdout)
    assert report["uid"] in killed.said
    assert (report["counts"]["same"], report["counts"]["differs"]) == (1, 2)
    listed = answer("audit", "--list", cwd=tmp_path)
    assert [a["uid"] for a in listed["audits"]] == [report["uid"]]
    assert len(listed["quarantine"]) == 2
    (forecast,) = answer("plan", flow, cwd=tmp_path)
    assert {s["path"]: s["expect"] for s in forecast["steps"]} == {
        "one": "run",
        "nap": "hit",
        "other": "run",
    }
    second = answer("run", flow, cwd=tmp_path)["runs"][0]
    assert (second["executed"], second["hits"]) == (2, 1)
    assert second["outputs"]["one"]["digest"] != first["outputs"]["one"]["digest"]
    book = answer("receipt", "--all", cwd=tmp_path)
    paid = sum(r["paid_nanousd"] for r in book["receipts"])
    assert paid + book["fabric"]["fabric_nanousd"] == book["fabric"]["bill_nanousd"]
