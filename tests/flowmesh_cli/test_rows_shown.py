"""Rows of a run on screen: after it, with ``fmesh outputs --head`` and with ``fmesh sql``."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import environment, fmesh

pytestmark = pytest.mark.slow
ROWS = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder in which a workflow ran; its output was shown."""
    folder = tmp_path_factory.mktemp("rows")
    flows.questions(folder, rows=ROWS)
    spec = flows.scored()
    spec["outputs"] = {"replies": "reply.rows", "score": "score.metrics"}
    done = fmesh("run", flows.write(folder, "shown", spec), cwd=folder)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    first = lines.index("first rows of replies:")
    assert sorted(lines[first + 1].split()) == ["answer", "question", "target"]
    assert lines[first + 2].split() == ["0", "0", "0"]
    assert lines[first + 4].split() == ["10", "10", "10"]
    return folder


def test_first_rows_and_chosen_columns(folder: Path) -> None:
    done = fmesh("outputs", "shown/replies", "--head", "2", "--columns", "target", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-3:] == ["target", "0", "1"]
    done = fmesh("outputs", "--head", "1", "--json", cwd=folder)
    row = {"answer": "0", "question": "0", "target": "0"}
    assert json.loads(done.stdout)["rows"] == {"replies": [row]}


def test_a_wrong_name_is_answered_with_the_right_ones(folder: Path) -> None:
    done = fmesh("outputs", "shown/reply", cwd=folder)
    assert done.returncode != 0
    assert "no output 'reply'; did you mean 'replies'?" in done.stderr
    done = fmesh("outputs", "--head", "1", "--columns", "targt", cwd=folder)
    assert done.returncode != 0
    assert "no column 'targt'; did you mean 'target'?" in done.stderr


def test_sql_over_the_outputs(folder: Path) -> None:
    query = "select count(*) as n, sum(target::int) as s from replies"
    done = fmesh("sql", query, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == [{"n": ROWS, "s": sum(range(ROWS // 2)) * 2}]
    done = fmesh("sql", "select question from replies", "--limit", "3", cwd=folder)
    assert len(done.stdout.splitlines()) == 4
    assert f"the first 3 of {ROWS} rows" in done.stderr


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("select * from read_csv('/etc/hostname')", "file system operations are disabled"),
        ("select x from replies", '"x" not found'),
        ("select * from other", "there is no table 'other'"),
        ("create table t as select 1", "it is not one SELECT"),
    ],
)
def test_a_wrong_query_is_answered_with_the_reason(folder: Path, query: str, reason: str) -> None:
    done = fmesh("sql", query, cwd=folder)
    assert done.returncode != 0
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_first_rows_as_json_and_as_csv(folder: Path) -> None:
    done = fmesh("outputs", "--head", "2", "--format", "json", cwd=folder)
    assert json.loads(done.stdout)[1] == {"answer": "1", "question": "1", "target": "1"}
    done = fmesh("outputs", "--head", "2", "--format", "csv", cwd=folder)
    assert done.stdout == "answer,question,target\n0,0,0\n1,1,1\n"


def test_a_file_for_each_row(folder: Path) -> None:
    words = ("outputs", "shown/replies", "--download", "each", "--column", "question")
    done = fmesh(*words, "--files", "of-{{ target }}/{{ question }}.md", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert f"{ROWS} files -> each" in done.stderr
    assert (folder / "each" / "of-1" / f"{ROWS // 2 + 1}.md").read_text() == f"{ROWS // 2 + 1}"


def test_runs_are_listed_and_one_step_is_shown(folder: Path) -> None:
    assert "team-a/shown" in fmesh("list", cwd=folder).stdout
    one = fmesh("status", "shown", "score", "--json", cwd=folder)
    assert [step["path"] for step in json.loads(one.stdout)["steps"]] == ["score"]
    assert "eval.exact-match" in fmesh("why", "shown", "score", cwd=folder).stdout


@pytest.mark.parametrize(
    ("line", "completed"),
    [("fmesh why shown sc", "score"), ("fmesh outputs shown/re", "shown/replies")],
)
def test_a_shell_completes_steps_and_outputs(folder: Path, line: str, completed: str) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", "from flowmesh_cli.main import main; main()"],
        cwd=folder,
        env={**environment(), **words, "_FMESH_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == completed, done.stderr


def test_two_columns_are_drawn_as_text_and_into_a_file(folder: Path) -> None:
    steps = {"rows": [{"step": n, "loss": 4.0 / (n + 1)} for n in range(8)]}
    query = "select step, loss from t order by step"
    curve = flows.write(
        folder,
        "curve",
        {
            "inputs": {"t": steps},
            "steps": [
                {
                    "name": "all",
                    "uses": "data.sql",
                    "inputs": {"t": "inputs.t"},
                    "with": {"query": query},
                }
            ],
            "outputs": {"losses": "all.rows"},
        },
    )
    assert fmesh("run", curve, cwd=folder).returncode == 0
    done = fmesh("plot", "curve/losses", "--x", "step", "--y", "loss", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("•") == 8
    words = ("plot", "curve", "--x", "step", "--y", "loss", "-o", "curve.svg")
    assert fmesh(*words, cwd=folder).returncode == 0
    assert "<svg" in (folder / "curve.svg").read_text()
