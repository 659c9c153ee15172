"""Rows of a run on screen: after it, with ``fmesh outputs --head`` and with ``fmesh sql``."""

import json
from pathlib import Path

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import fmesh

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
        ("select * from other", "other does not exist"),
        ("create table t as select 1", "it is not one SELECT"),
    ],
)
def test_a_wrong_query_names_the_tables(folder: Path, query: str, reason: str) -> None:
    done = fmesh("sql", query, cwd=folder)
    assert done.returncode != 0
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
