"""``fmesh run`` and the queries after it, on data engines."""

import csv
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer, fmesh

from flowmesh_cli.exit_codes import ExitCode

pytestmark = pytest.mark.slow

RUN_FIELDS = {
    "uid", "name", "namespace", "phase", "created_s", "ended_s", "steps", "counts", "actions",
    "executed", "hits", "paid_nanousd", "saved_nanousd", "joules", "joules_estimated",
    "budget_nanousd", "deadline_s", "priority", "failed_step", "reason", "message", "remedy", "log",
    "outputs", "eta_s", "audit_of",
}  # fmt: skip
FABRIC_FIELDS = {
    "epoch", "workers", "ready_actions", "running_actions", "bill_nanousd", "receipts_nanousd",
    "fabric_nanousd", "unsettled_nanousd", "saved_nanousd", "executed", "hits_published",
    "hits_in_flight", "hits_step_level", "rejections", "services_nanousd", "trouble",
    "unreadable_runs",
}  # fmt: skip


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with an ended run that no process serves."""
    folder = tmp_path_factory.mktemp("ended")
    flows.questions(folder)
    flow = flows.write(folder, "small", flows.scored())
    done = fmesh("run", flow, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "output accuracy: accuracy 0.5, count 40" in done.stdout
    assert "team-a/small score completed" in done.stderr
    return folder


def test_a_second_run_of_another_tenant_hits_only_under_a_policy(tmp_path: Path):
    flows.questions(tmp_path)
    flow = flows.write(tmp_path, "small", flows.scored())
    friends = flows.policy(tmp_path, "team-a", "team-b")
    command = ("run", flow, flow, friends, "-n", "team-a", "-n", "team-b")
    shared = answer(*command, cwd=tmp_path)
    assert set(shared) == {"runs", "fabric"}
    assert set(shared["runs"][0]) == RUN_FIELDS
    assert set(shared["fabric"]) == FABRIC_FIELDS
    assert shared["fabric"]["executed"] == 2
    apart = answer(*command, "--no-policies", "--state-dir", tmp_path / "apart", cwd=tmp_path)
    assert apart["fabric"]["executed"] == 4
    assert digests(shared) == digests(apart)
    book = answer("receipt", "--all", cwd=tmp_path)
    paid = sum(r["paid_nanousd"] for r in book["receipts"])
    assert paid + book["fabric"]["fabric_nanousd"] == book["fabric"]["bill_nanousd"]
    assert {s["taker"] for s in book["shared"]} <= {"team-a/small", "team-b/small"}
    assert book["shared"]


def digests(answered: dict[str, Any]) -> list[dict[str, str]]:
    return [{n: o["digest"] for n, o in run["outputs"].items()} for run in answered["runs"]]


def test_an_ended_run_is_shown_without_a_fabric(ended: Path):
    status = answer("status", cwd=ended)
    assert set(status) == RUN_FIELDS
    assert status["phase"] == "Succeeded"
    shown = fmesh("status", "small", cwd=ended).stdout
    assert "✔ reply" in shown
    assert status["uid"] in fmesh("status", "--all", cwd=ended).stdout


def test_a_receipt_adds_up_to_the_cost_in_the_status(ended: Path):
    status, receipt = answer("status", cwd=ended), answer("receipt", cwd=ended)
    assert receipt["paid_nanousd"] == status["paid_nanousd"] > 0
    assert [line["step"] for line in receipt["lines"]] == ["reply", "score"]


def test_outputs_are_downloaded_in_the_wanted_format(ended: Path, tmp_path: Path):
    assert fmesh("outputs", "--download", tmp_path, cwd=ended).returncode == 0
    rows = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert len(rows) == 40
    assert json.loads((tmp_path / "accuracy.json").read_text()) == {"accuracy": 0.5, "count": 40}
    fmesh("outputs", "--download", tmp_path, "--format", "csv", cwd=ended)
    with (tmp_path / "answers.csv").open() as file:
        assert list(csv.DictReader(file)) == rows
    assert fmesh("outputs", "--format", "xls", cwd=ended).returncode == ExitCode.USAGE


def test_lineage_goes_up_from_an_output_and_why_names_the_attempt(ended: Path):
    shown = fmesh("lineage", "small/accuracy", cwd=ended).stdout
    assert "by eval.exact-match 1.2 in team-a/small score" in shown
    assert 'prediction="answer"' in shown
    assert "from rows: dataset" in shown
    assert "action on local-1 (cpu): duckdb" in shown
    assert shown.splitlines()[-1].endswith("; uploaded, or made by an unknown run")
    down = answer("lineage", "small/answers", "--down", cwd=ended)
    assert [d["step"] for d in down["derivations"]] == ["score"]
    assert answer("lineage", "small/reply.rows", "--down", cwd=ended) == down
    assert answer("lineage", down["digest"][:12], "--down", cwd=ended) == down
    assert len(answer("lineage", "small/accuracy", "--depth", "1", cwd=ended)["derivations"]) == 1
    assert "published" in fmesh("why", "score", cwd=ended).stdout
    wrong = fmesh("why", "scor", cwd=ended)
    assert wrong.returncode == ExitCode.NOT_FOUND
    assert "did you mean 'score'" in wrong.stderr


@pytest.mark.parametrize("named", ["abc", "f" * 64, "f" * 12, "small", "small/answer"])
def test_the_lineage_of_an_unknown_artifact_is_an_error_with_an_exit_code(ended: Path, named: str):
    done = fmesh("lineage", named, "--json", cwd=ended)
    assert done.returncode == ExitCode.NOT_FOUND
    assert "remedy: " in done.stderr or json.loads(done.stdout)["error"]["remedy"]


def test_a_run_is_exported_as_openlineage_events(ended: Path, tmp_path: Path):
    done = fmesh("export", "openlineage", "small", "--out", tmp_path / "events", cwd=ended)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert [e["eventType"] for e in events] == ["START", *("START", "COMPLETE") * 2, "COMPLETE"]
    made, used = events[2]["outputs"], events[3]["inputs"]
    assert [d["name"] for d in made] == [d["name"] for d in used]
    assert made[0]["name"] == answer("status", cwd=ended)["outputs"]["answers"]["digest"]


def test_a_bill_and_rows_of_focus_say_what_the_receipts_say(ended: Path, tmp_path: Path):
    paid = [r["paid_nanousd"] for r in answer("receipt", "--all", cwd=ended)["receipts"]]
    bill = answer("bill", "--by", "run", cwd=ended)
    assert bill["paid_nanousd"] == sum(paid) > 0
    assert sorted(line["paid_nanousd"] for line in bill["lines"]) == sorted(filter(None, paid))
    out = tmp_path / "focus.csv"
    done = fmesh("export", "focus", "small", "--since", "1d", "--out", out, cwd=ended)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(out.read_text().splitlines()))
    small = answer("receipt", "small", cwd=ended)["paid_nanousd"]
    assert sum(Decimal(row["BilledCost"]) for row in rows) == Decimal(small) / 10**9
    wrong = fmesh("bill", "--by", "month", cwd=ended)
    assert wrong.returncode == ExitCode.USAGE
    assert "'month' is not one of day, namespace, run" in wrong.stderr
    assert fmesh("bill", "--until", "2020-01-01", cwd=ended).stdout.startswith("namespace")


def test_a_run_is_traced_without_its_names_and_content_and_replayed(ended: Path, tmp_path: Path):
    path, policy = tmp_path / "trace.jsonl", tmp_path / "new.yaml"
    done = fmesh("trace", "small", "-o", path, cwd=ended)
    assert done.returncode == 0, done.stderr
    rows = json.loads(fmesh("outputs", "small", "--json", cwd=ended).stdout)
    assert rows
    assert "score" not in path.read_text()
    assert "team-a" not in path.read_text()
    policy.write_text("policy: fifo\nprices: {cpu: 9.0}\n")
    found = answer("replay", path, "--policy", policy, cwd=tmp_path)
    assert (found["policy"], found["recorded"]["runs"], found["replayed"]["runs"]) == ("fifo", 1, 1)
    assert found["replayed"]["usd"] > 2 * found["recorded"]["usd"]
    policy.write_text("pools: [{name: a, device: abacus}]\n")
    wrong = fmesh("replay", path, "--policy", policy, cwd=tmp_path)
    assert wrong.returncode == ExitCode.USAGE
    assert "no device 'abacus'" in wrong.stderr


def test_the_cache_is_counted_collected_and_purged(tmp_path: Path):
    flow = flows.write(tmp_path, "nap", flows.sleeping(0))
    assert answer("run", flow, cwd=tmp_path)["fabric"]["executed"] == 2
    stats = answer("cache", "stats", cwd=tmp_path)
    assert [(s["scope"], s["results"]) for s in stats["cache"]["scopes"]] == [("ns-team-a", 2)]
    assert answer("cache", "gc", "--dry-run", cwd=tmp_path)["deleted"] == 0
    purge = ("cache", "purge", "-n", "team-a", "--engine", "test.sleep", "-y")
    assert answer(*purge, cwd=tmp_path) == {"deleted": 1}
    again = answer("run", flow, cwd=tmp_path)["runs"][0]
    assert (again["executed"], again["hits"]) == (1, 1)


def test_a_plan_shows_which_steps_hit_and_which_would_run(ended: Path):
    (forecast,) = answer("plan", ended / "small.yaml", cwd=ended)
    assert (forecast["actions"], forecast["hits"]) == (2, 2)
    fresh = answer("plan", ended / "small.yaml", "-n", "team-z", cwd=ended)[0]
    assert fresh["hits"] == 0
    assert fresh["nanousd"] > 0


def test_an_unmeetable_budget_is_refused_before_anything_runs(tmp_path: Path):
    spec = {**flows.sleeping(30), "budgetUsd": "0.000000001"}
    flow = flows.write(tmp_path, "dear", spec)
    done = fmesh("plan", flow, cwd=tmp_path)
    assert done.returncode == ExitCode.REFUSED
    assert "spec.budgetUsd" in done.stderr


PRINTS = "def main(rows):\n  print('same')\n  print('same')\n"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Returns a folder with three ended runs, two of them failed, and the output."""
    folder = tmp_path_factory.mktemp("three")
    flows.questions(folder)
    wrong = {"query": "select cast('missing' as int) as answer, question, target from rows"}
    raises = {"code": PRINTS + "  raise ValueError('no')"}
    fine = {"code": "def main(rows):\n  print('good bye')\n  return rows"}
    steps: dict[str, dict[str, Any]] = {
        "wrong": {"with": wrong},
        "raises": {"uses": "code.python", "with": raises},
        "fine": {"uses": "code.python", "with": fine},
    }
    files = []
    for name, step in steps.items():
        spec = flows.scored()
        spec["steps"][0] |= step
        if name == "fine":
            spec["steps"][1]["with"]["prediction"] = "target"
        files.append(flows.write(folder, name, spec))
    done = fmesh("run", *files, cwd=folder)
    assert done.returncode == ExitCode.FAILED
    assert "team-a/fine Succeeded" in done.stderr
    assert "Traceback" not in done.stdout
    return folder, done.stderr


def test_a_failed_run_ends_with_step_reason_and_remedy(three: tuple[Path, str]):
    folder, said = three
    end = said.partition("team-a/wrong failed in step reply")[2].partition("team-a/")[0]
    assert "missing" in end
    assert "  try: " in end
    assert "Traceback" not in end
    assert fmesh("logs", "wrong", "--step", "reply", cwd=folder).returncode == 0


def test_repeated_lines_of_a_failed_step_are_shown_as_often_as_they_were_printed(
    three: tuple[Path, str],
):
    folder, said = three
    assert [line.strip() for line in said.splitlines()].count("same") == 2
    assert fmesh("logs", "raises", cwd=folder).stdout.count(" same\n") == 2


def test_logs_of_steps_can_be_read_after_the_fabric_has_stopped(three: tuple[Path, str]):
    folder, _ = three
    assert fmesh("logs", "fine", cwd=folder).stdout.endswith(" good bye\n")
    (line,) = fmesh("logs", "fine", "--json", cwd=folder).stdout.splitlines()
    assert json.loads(line)["text"] == "good bye"


def test_every_problem_of_all_files_is_reported_at_once_with_its_location(tmp_path: Path):
    spec = flows.scored()
    spec["steps"][1]["uses"] = "eval.exact-mtch"
    spec["steps"][0]["inputs"] = {"rows": "inputs.question"}
    flow = flows.write(tmp_path, "bad", spec)
    lost = flows.write(tmp_path, "lost", flows.scored())
    done = fmesh("run", flow, lost, cwd=tmp_path)
    assert done.returncode == ExitCode.USAGE
    found = done.stderr.splitlines()
    assert any(line.startswith(f"{flow}:") and "exact-match" in line for line in found)
    assert any(line.startswith(f"{flow}:") and "questions" in line for line in found)
    assert any(line.startswith(f"{lost}:") and "does not exist" in line for line in found)
    assert not (tmp_path / ".flowmesh").exists()


def test_parameters_are_set_by_name_and_unknown_ones_refused(tmp_path: Path):
    flows.questions(tmp_path)
    flow = flows.write(tmp_path, "small", flows.scored())
    assert fmesh("validate", flow, "--set", "limit=5", cwd=tmp_path).returncode == 0
    wrong = fmesh("validate", flow, "--set", "limt=5", cwd=tmp_path)
    assert wrong.returncode == ExitCode.USAGE
    assert "did you mean 'limit'" in wrong.stderr
    assert fmesh("validate", flow, "-n", "a", "-n", "b", cwd=tmp_path).returncode == ExitCode.USAGE


def test_commands_that_need_a_fabric_show_how_to_start_one(tmp_path: Path):
    flow = flows.write(tmp_path, "nap", flows.sleeping(0))
    for command in (("submit", flow), ("status",), ("watch",)):
        done = fmesh(*command, cwd=tmp_path)
        assert done.returncode == ExitCode.NO_FABRIC
        assert "remedy: start" in done.stderr
