"""The command line itself: fast, and never a traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import children_s, fmesh

from flowmesh_cli.errors import CliError, FilesError, guarded
from flowmesh_cli.exit_codes import ExitCode

HEAVY = ("rich", "aiohttp", "pydantic", "pyarrow", "duckdb", "torch", "vllm", "boto3", "asyncio")


def test_help_loads_nothing_that_it_does_not_need(tmp_path: Path):
    code = "import sys, flowmesh_cli.main; print([m for m in sys.argv[1:] if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_a_read_only_command_loads_neither_the_compiler_nor_the_control_plane(tmp_path: Path):
    code = (
        "import sys, flowmesh_cli.verbs.manage_runs; "
        "print([m for m in sys.argv[1:] if m in sys.modules])"
    )
    heavy = (*HEAVY[1:], "flowmesh_core.graph.compile", "flowmesh_core.machine.machine")
    heavy += ("flowmesh_sdk.client", "flowmesh_cli.cluster.gateway", "flowmesh_core.catalog")
    found = subprocess.run(
        [sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_help_takes_less_than_half_a_second_of_cpu_time(tmp_path: Path):
    times = []
    for _ in range(3):
        before = children_s()
        assert fmesh("--help", cwd=tmp_path).returncode == 0
        times.append(children_s() - before)
    assert min(times) < 0.5


def test_engines_are_listed_and_shown_and_misspelt_ones_get_a_suggestion(tmp_path: Path):
    listed = json.loads(fmesh("engines", "--json", cwd=tmp_path).stdout)
    assert "llm.generate" in [engine["name"] for engine in listed]
    shown = fmesh("engines", "llm.generate", cwd=tmp_path).stdout
    assert "maxTokens" in shown
    assert "exactly one of: prompt, messages" in shown
    wrong = fmesh("engines", "llm.generat", cwd=tmp_path)
    assert wrong.returncode == ExitCode.NOT_FOUND
    assert "did you mean 'llm.generate'" in wrong.stderr


def test_an_unknown_command_is_a_usage_error(tmp_path: Path):
    assert fmesh("bogus", cwd=tmp_path).returncode == ExitCode.USAGE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run flow.yaml --param x=1", "No such option: --param; did you mean --set?"),
        ("plan flow.yaml -p x=1", "No such option: -p; did you mean --set?"),
        ("submit flow.yaml --params=x=1", "No such option: --params; did you mean --set?"),
        ("validate flow.yaml --arg x=1", "No such option: --arg; did you mean --set?"),
        ("graph flow.yaml --sett x=1", "No such option: --sett; did you mean --set?"),
        ("status --param x=1", "No such option: --param"),
    ],
)
def test_an_option_for_parameters_under_another_name_is_answered_with_its_name(
    arguments: str, message: str, tmp_path: Path
):
    done = fmesh(*arguments.split(), "--json", cwd=tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.endswith(f"Error: {message}\n")
    assert json.loads(done.stdout)["error"]["message"] == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("amend x --priority high", "'--priority': high is not a valid integer"),
        ("load x --rate fast", "'--rate': fast is not a valid number"),
        ("load x --rate 0", "'--rate': 0 is not greater than or equal to 0.01"),
        ("run flow.yaml --workers -1", "'--workers': -1 is not greater than or equal to 0"),
    ],
)
def test_a_wrong_value_of_an_option_is_named(arguments: str, message: str, tmp_path: Path):
    done = fmesh(*arguments.split(), "--json", cwd=tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert json.loads(done.stdout)["error"]["message"] == f"Invalid value for {message}"


def ending(error: BaseException) -> tuple[int, str]:
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    @guarded
    def command() -> None:
        raise error

    from typer.testing import CliRunner

    result = CliRunner().invoke(app)
    return result.exit_code, result.output


def test_errors_are_shown_with_location_reason_and_remedy():
    error = CliError("is closed", ExitCode.REFUSED, where="the door", remedy="knock")
    assert ending(error) == (4, "error: the door: is closed\nremedy: knock\n")


def test_every_problem_of_a_file_is_printed_on_its_own_line():
    code, text = ending(FilesError(["a.yaml:1:2: kind: is required", "a.yaml:3:1: x: unknown"]))
    assert code == 2
    assert text.splitlines()[:2] == ["a.yaml:1:2: kind: is required", "a.yaml:3:1: x: unknown"]


def test_an_internal_error_shows_no_traceback_unless_requested(monkeypatch):
    monkeypatch.delenv("FMESH_DEBUG", raising=False)
    code, text = ending(ZeroDivisionError("x"))
    assert code == ExitCode.INTERNAL
    assert "Traceback" not in text
    assert "FMESH_DEBUG=1" in text
    monkeypatch.setenv("FMESH_DEBUG", "1")
    code, _ = ending(ZeroDivisionError("x"))
    assert code == 1


def test_ctrl_c_ends_a_command_with_its_own_code():
    assert ending(KeyboardInterrupt())[0] == ExitCode.INTERRUPTED


def test_a_closed_output_pipe_is_not_an_error(tmp_path: Path):
    command = (
        f"{sys.executable} -m flowmesh_cli engines --json | head -c 10; exit ${{PIPESTATUS[0]}}"
    )
    shell = ["bash", "-o", "pipefail", "-c", command]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_graph_is_drawn_as_text_and_as_mermaid(tmp_path: Path):
    flows.questions(tmp_path)
    flow = flows.write(tmp_path, "small", flows.scored())
    drawn = fmesh("graph", flow, cwd=tmp_path).stdout
    assert "└─ reply  data.sql" in drawn
    assert "→ accuracy: score.metrics" in drawn
    diagram = fmesh("graph", "--mermaid", flow, cwd=tmp_path).stdout
    assert diagram.startswith("flowchart LR")


def test_a_file_is_read_from_standard_input(tmp_path: Path):
    text = flows.write(tmp_path, "small", flows.sleeping(0)).read_text()
    command = [sys.executable, "-m", "flowmesh_cli", "validate", "-", "--json"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    expected = [{"name": "small", "namespace": "team-a", "steps": 2}]
    assert json.loads(done.stdout)["workflows"] == expected
