"""Which engines ``fmesh engines`` lists."""

import json

import pytest
from typer.testing import CliRunner

from flowmesh_cli.main import app
from flowmesh_cli.verbs import engines
from flowmesh_worker.engines.registry import Engines


def listed(*options: str) -> set[str]:
    done = CliRunner().invoke(app, ["engines", "--json", *options])
    assert done.exit_code == 0, done.output
    return {engine["name"] for engine in json.loads(done.stdout)}


def test_engines_for_tests_are_listed_if_all_engines_are_requested() -> None:
    usual, every = listed(), listed("--all")
    assert "data.sql" in usual
    assert "test.sleep" in every
    assert every - usual == {name for name in every if name.startswith("test.")}


def test_an_engine_for_tests_is_shown_by_its_name() -> None:
    done = CliRunner().invoke(app, ["engines", "test.sleep"])
    assert (done.exit_code, done.stdout.split()[0]) == (0, "test.sleep")


def test_fields_of_an_engine_are_shown_where_they_are_written() -> None:
    lines = CliRunner().invoke(app, ["engines", "llm.generate"]).stdout.splitlines()
    assert "  with, besides the parameters: dtype, batchInvariant, implementation" in lines
    assert "  under resources: tensorParallel" in lines


def test_engines_that_do_not_run_here_are_marked_with_what_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = CliRunner().invoke(app, ["engines"]).stdout
    assert "does not run here" not in every
    monkeypatch.setattr(engines, "installed_engines", lambda: Engines([]))
    shown = CliRunner().invoke(app, ["engines"]).stdout
    assert "data.sql *" in shown
    assert "* does not run here: " in shown
    assert "'flowmesh-fabric[worker-" in shown
