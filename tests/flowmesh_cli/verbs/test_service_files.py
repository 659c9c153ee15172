"""Files of services: `fmesh validate` and `fmesh serve` find the same mistakes."""

import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.main import app

EXAMPLE = Path(__file__).parents[3] / "examples" / "services" / "ask-docs.yaml"
COMMANDS = ("validate", "serve")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the example, in which commands run."""
    for name in ("ask-docs.yaml", "rerank.py"):
        shutil.copy(EXAMPLE.with_name(name), tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def changed(folder: Path, old: str, new: str) -> None:
    file = folder / "ask-docs.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def refused(*arguments: str) -> list[str]:
    """Returns the lines with which a command refuses its arguments at once."""
    done: Result = CliRunner().invoke(app, [*arguments])
    assert done.exit_code == ExitCode.USAGE, done.output
    assert not Path(".flowmesh", "owner").exists()
    return done.stderr.splitlines()


def missing_file(folder: Path) -> str:
    changed(folder, "./rerank.py", "./rerak.py")
    return r"spec\.components\.rerank\.python\.file: .*rerak\.py does not exist"


def folder_for_file(folder: Path) -> str:
    changed(folder, "./rerank.py", "./code")
    (folder / "code").mkdir()
    return r"spec\.components\.rerank\.python\.file: .*/code is a folder: expected a file of Python"


def missing_function(folder: Path) -> str:
    changed(folder, "function: best", "function: bets")
    return (
        r"spec\.components\.rerank\.python\.function: \./rerank\.py: 'bets' is not defined in it;"
        r" did you mean 'best'\?"
    )


def wrong_python(folder: Path) -> str:
    (folder / "rerank.py").write_text("import json\ndef best(:\n")
    return r"spec\.components\.rerank\.python\.file: \./rerank\.py: not Python: .* on line 2 of it"


def missing_model(folder: Path) -> str:
    changed(folder, "model: smollm2-135m-instruct", "model: ./my-model")
    return r"spec\.inputs\.base\.model: .*my-model does not exist"


def unknown_dtype(folder: Path) -> str:
    changed(folder, "dtype: float32", "dtype: fp32")
    return r"spec\.components\.writer\.with\.dtype: 'fp32' is not allowed; use one of"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "mistake",
    [
        missing_file,
        folder_for_file,
        missing_function,
        wrong_python,
        missing_model,
        unknown_dtype,
    ],
)
def test_a_mistake_is_named_with_its_line(
    folder: Path, command: str, mistake: Callable[[Path], str]
) -> None:
    expected = mistake(folder)
    lines = refused(command, "ask-docs.yaml")
    place = re.compile(r"(error: )?ask-docs\.yaml:([0-9]+):[0-9]+: " + expected)
    [found] = [match for line in lines if (match := place.match(line))]
    field = re.split(r"[.\\]+", expected.partition(":")[0])[-1]
    named = (folder / "ask-docs.yaml").read_text().splitlines()[int(found[2]) - 1]
    assert field in named


@pytest.mark.parametrize("command", COMMANDS)
def test_every_mistake_is_named_at_once(folder: Path, command: str) -> None:
    changed(folder, "./rerank.py", "./rerak.py")
    changed(folder, "component: search", "component: serch")
    text = "\n".join(refused(command, "ask-docs.yaml"))
    assert "rerak.py does not exist" in text
    assert "did you mean 'search'?" in text


def test_a_model_that_cannot_be_served_is_named_as_it_was_given(folder: Path) -> None:
    lines = refused("serve", "smollm2-135m-instruc")
    assert lines[0].startswith("error: smollm2-135m-instruc: no built-in model")
    assert "did you mean 'smollm2-135m-instruct'?" in lines[0]


def test_a_dtype_that_no_model_has_is_named_as_the_option(folder: Path) -> None:
    [line, *_] = refused("serve", "smollm2-135m-instruct", "--dtype", "fp32")
    assert line.startswith("error: --dtype: 'fp32' is not allowed; use one of 'auto', 'float32'")


def test_a_port_that_another_process_uses_is_refused_before_a_model_is_loaded(
    folder: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        lines = refused("serve", "smollm2-135m-instruct", "--port", str(port))
    assert lines == [
        f"error: --port: port {port} is in use",
        "remedy: choose another, or 0 for any",
    ]
