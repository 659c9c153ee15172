"""``fmesh serve``, ``call`` and ``load``: a newcomer's three commands, with a real model."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import openai
import psutil
import pytest
from tests.flowmesh_cli.calling import answer, end_workers, fmesh, started, until

from flowmesh_cli.exit_codes import ExitCode

MODEL = "smollm2-135m-instruct"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_workers(tmp_path)


@pytest.mark.slow
@pytest.mark.model
def test_a_model_is_served_called_and_loaded_until_ctrl_c(folder: Path) -> None:
    endpoint = folder / ".flowmesh" / "serving" / "endpoint.json"
    with started("serve", MODEL, cwd=folder) as serving:
        serving.until("Ctrl-C stops")
        found = json.loads(endpoint.read_text())
        assert endpoint.stat().st_mode & 0o077 == 0
        with openai.OpenAI(base_url=found["url"], api_key=found["tokens"][MODEL]) as client:
            question = [{"role": "user", "content": "What is the capital of France?"}]
            stream = client.chat.completions.create(
                model=MODEL,
                messages=question,  # type: ignore[arg-type]
                temperature=0,
                max_tokens=16,
                stream=True,
            )
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert "Paris" in text
        called = fmesh("call", MODEL, question[0]["content"], "--temperature", "0", cwd=folder)
        assert called.stdout.strip() == text
        wrong = fmesh("call", "other", "Hello!", cwd=folder)
        assert (wrong.returncode, f"{MODEL} is" in wrong.stderr) == (ExitCode.NOT_FOUND, True)
        report = answer(
            "load", MODEL, "--rate", "4", "--for", "2s", "--max-tokens", "4", cwd=folder
        )
        assert (report["sent"], report["ok"]) == (8, 8)
        second = fmesh("serve", MODEL, cwd=folder)
        assert (second.returncode, "another `fmesh serve`" in second.stderr) == (
            ExitCode.USAGE,
            True,
        )
        (router,) = (
            child
            for child in psutil.Process(serving.process.pid).children()
            if "flowmesh_serving.router" in child.cmdline()
        )
        router.kill()
        serving.until("is started again")
        again = ("call", MODEL, question[0]["content"], "--temperature", "0")
        until(lambda: fmesh(*again, cwd=folder).stdout.strip() == text)
        serving.process.send_signal(signal.SIGINT)
        assert serving.end() == ExitCode.OK
    assert not endpoint.exists()
    assert answer("status", "--all", cwd=folder)["runs"]  # the import of the model stays


def test_without_fmesh_serve_a_call_says_what_to_do(tmp_path: Path) -> None:
    done = fmesh("call", MODEL, "Hello!", cwd=tmp_path)
    assert done.returncode == ExitCode.NO_FABRIC
    assert "fmesh serve MODEL" in done.stderr
