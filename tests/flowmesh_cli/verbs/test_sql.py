"""What ``fmesh sql`` says of tables that a run does not have."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from flowmesh_api.v1.runs import RunStatus
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.main import app
from flowmesh_cli.verbs import sql

OUTPUTS = {
    "answers": {"kind": "dataset", "rows": 2},
    "accuracy": {"kind": "metrics", "value": {"accuracy": 0.5}},
    "late": None,
}
Ask = Callable[..., Result]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Returns a function that asks a run with these outputs."""

    def asked(*words: str, outputs: dict[str, Any] = OUTPUTS, phase: str = "Succeeded") -> Result:
        status = RunStatus("u1", "n", "t", phase, 1.0, outputs=outputs)

        @contextmanager
        def query_fabric(_: object) -> Iterator[object]:
            yield SimpleNamespace(get=lambda path, kind: status)

        monkeypatch.setattr(sql, "query_fabric", query_fabric)
        monkeypatch.setattr(sql, "find_run", lambda http, run: "u1")
        return CliRunner().invoke(app, ["sql", *words])

    return asked


def test_an_unknown_table_is_answered_with_those_of_the_run_that_was_asked(ask: Ask) -> None:
    done = ask("select * from nosuch")
    assert done.exit_code == ExitCode.USAGE
    assert "there is no table 'nosuch'" in done.stderr
    assert 'the tables of u1, the latest run, are "answers"; --run RUN asks another' in done.stderr
    assert 'the tables of u1 are "answers"' in ask("select * from no", "--run", "u1").stderr


@pytest.mark.parametrize("query", ["selec 1", "", "delete from nosuch"])
def test_other_mistakes_do_not_list_the_tables(ask: Ask, query: str) -> None:
    done = ask(query)
    assert done.exit_code == ExitCode.USAGE
    assert "the tables" not in done.stderr


def test_an_output_that_is_no_data_set_is_no_table(ask: Ask) -> None:
    done = ask("select * from accuracy")
    assert "output 'accuracy' is metrics, not rows" in done.stderr
    assert "`fmesh outputs u1/accuracy` shows it" in done.stderr
    assert "output 'late' is null (its step was skipped)" in ask("select * from late").stderr
    running = ask("select * from late", phase="Running").stderr
    assert "output 'late' is none (its step has not completed)" in running


def test_a_run_without_data_sets_is_answered_with_what_it_has(ask: Ask) -> None:
    done = ask("select 1", outputs={"late": None})
    assert done.exit_code == ExitCode.NOT_FOUND
    assert "it has ended; its outputs: late: null (its step was skipped)" in done.stderr
    assert "outputs appear when" not in done.stderr
    assert "it has ended; its outputs: none" in ask("select 1", outputs={}).stderr
    running = ask("select 1", outputs={"late": None}, phase="Running").stderr
    assert "outputs appear when their steps have ended: `fmesh status u1`" in running
