"""``fmesh serve`` of the example that iterates: its replies equal the same code run alone."""

import concurrent.futures
import json
import runpy
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.flowmesh_cli.calling import end_workers, fmesh, started

from flowmesh_cli.exit_codes import ExitCode

EXAMPLE = Path(__file__).parents[2] / "examples" / "services" / "denoise.yaml"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_workers(tmp_path)


def alone(request: dict[str, Any]) -> dict[str, Any]:
    """Runs a request without others, by the example's own code."""
    model = runpy.run_path(str(EXAMPLE.parent / "denoise.py"))["Denoise"]()
    state = model.start(request)
    assert model.remaining(state) == request["steps"]
    while model.step([state]) != [True]:
        pass
    found: dict[str, Any] = model.finish(state)
    return found


def requests() -> list[dict[str, Any]]:
    shapes = ("a disc", "a square")
    return [{"prompt": shapes[n % 2], "steps": 1 + 7 * n, "seed": n} for n in range(12)]


def test_the_example_draws_what_it_is_asked_for() -> None:
    rows = alone({"prompt": "a disc", "steps": 50, "seed": 7})["rows"]
    assert len(rows) == 16
    assert rows[0].strip() == ""
    assert rows[8].strip(" .").startswith(":")
    assert rows == alone({"prompt": "a disc", "steps": 9, "seed": 1})["rows"], "noise is gone"


@pytest.mark.slow
def test_the_example_answers_as_it_does_alone(folder: Path) -> None:
    done = fmesh("validate", str(EXAMPLE), cwd=folder)
    assert done.returncode == ExitCode.OK, done.stderr
    with started("serve", str(EXAMPLE), cwd=folder) as serving:
        serving.until("Ctrl-C stops")
        found = json.loads((folder / ".flowmesh/serving/endpoint.json").read_text())
        url = f"{found['url']}/services/default/denoise:invoke"
        token = {"Authorization": f"Bearer {found['tokens']['denoise']}"}

        def ask(request: dict[str, Any]) -> Any:
            reply = httpx.post(url, json=request, headers=token, timeout=60)
            assert reply.status_code == 200, reply.text
            return reply.json()

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            assert list(pool.map(ask, requests())) == list(map(alone, requests()))
        called = fmesh("call", "denoise", json.dumps(requests()[3]), cwd=folder)
        assert called.returncode == ExitCode.OK, called.stderr
        serving.process.send_signal(signal.SIGINT)
        assert serving.end() == ExitCode.OK


def test_a_class_that_lacks_a_method_is_refused_with_its_line(tmp_path: Path) -> None:
    code = (EXAMPLE.parent / "denoise.py").read_text().replace("def finish(", "def finished(")
    (tmp_path / "denoise.py").write_text(code)
    (tmp_path / "denoise.yaml").write_text(EXAMPLE.read_text())
    done = fmesh("validate", "denoise.yaml", cwd=tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert "denoise.yaml:" in done.stderr
    assert "class Denoise has step and no finish: expected start, step and finish" in done.stderr
