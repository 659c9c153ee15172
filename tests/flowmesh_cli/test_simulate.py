"""``fmesh simulate``: one JSON document, a plot, and errors with their places."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flowmesh_cli.main import app
from flowmesh_cli.verbs import simulate

SCENARIO = Path(__file__).parent.parent.parent / "examples/simulate/no-ops.yaml"


def test_a_scenario_prints_its_metrics_and_a_plot(tmp_path: Path) -> None:
    plot = tmp_path / "run.svg"
    done = CliRunner().invoke(app, ["simulate", str(SCENARIO), "--json", "--plot", str(plot)])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["runs"], found["succeeded"]) == (40, 40)
    assert len(found["trace"]) == 64
    assert plot.read_text().count("<svg") == 1


def test_the_text_output_states_that_it_is_simulated() -> None:
    done = CliRunner().invoke(app, ["simulate", str(SCENARIO), "--policy", "fifo"])
    assert done.exit_code == 0
    assert "policy fifo (simulated)" in done.stdout
    assert "40 runs" in done.stdout


def test_a_plot_without_matplotlib_is_refused_before_anything_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(simulate, "Simulation", None)
    words = ["simulate", str(SCENARIO), "--plot", str(tmp_path / "run.svg")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert "drawing needs matplotlib" in done.stderr
    assert "'flowmesh-fabric[sim]'" in done.stderr


@pytest.mark.parametrize("option", ["--plot", "--trace"])
def test_an_output_file_that_cannot_be_written_is_reported_with_its_path(
    option: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "nowhere" / "x.svg")
    done = CliRunner().invoke(app, ["simulate", str(SCENARIO), option, file])
    assert done.exit_code == 1
    assert f"{file}: cannot be written: No such file or directory" in done.stderr


@pytest.mark.parametrize(
    "command", [["simulate"], ["replay"], ["replay", str(SCENARIO), "--policy"]]
)
def test_a_missing_file_is_reported_with_a_remedy(command: list[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "nosuch.yaml")
    done = CliRunner().invoke(app, [*command, missing])
    assert done.exit_code == 2
    assert f"error: {missing}: cannot be read: No such file or directory" in done.stderr
    assert "remedy: check the path" in done.stderr


def test_replaying_a_run_says_how_to_write_its_trace_first() -> None:
    done = CliRunner().invoke(app, ["replay", "small-1a2b"])
    assert done.exit_code == 2
    assert "error: small-1a2b: cannot be read: No such file or directory" in done.stderr
    said = " ".join(done.stderr.split())
    assert "`fmesh trace small-1a2b --out runs.jsonl`" in said
    assert "`fmesh replay runs.jsonl`" in said


def test_an_invalid_scenario_is_refused_with_its_problems(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("name: t\npools: [{name: p, device: h10}]\nload: []\n")
    done = CliRunner().invoke(app, ["simulate", str(path)])
    assert done.exit_code == 2
    assert "did you mean 'h100'" in done.stderr
