"""``fmesh serve``, ``call`` and ``load``: a newcomer's three commands, with a real model."""

import json
import math
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import openai
import psutil
import pytest
from tests.flowmesh_cli.calling import answer, end_workers, fmesh, started, until

from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.local.tool_parsers import tool_parser_names

MODEL = "smollm2-135m-instruct"
MIB = 1 << 20
BESIDE_ENGINE_MIB = 300.0
ROUTER = "flowmesh_serving.router"
PARTS = {"agent": "flowmesh_worker", "router": ROUTER, "hub": "flowmesh_worker.serving.hub"}
"""What the command lines of the processes have that `fmesh serve` starts beside engine hosts."""


def beside_engine_mib(serving: psutil.Process) -> dict[str, float]:
    """Returns the memory of `fmesh serve` without engine hosts, shared pages by their share (PSS).

    The control plane is in its own process.
    """
    found = {"control plane": serving}
    for process in serving.children(recursive=True):
        named = [name for name, module in PARTS.items() if module in process.cmdline()]
        found |= dict.fromkeys(named, process)
    assert found.keys() == {"control plane", *PARTS}
    return {name: process.memory_full_info().pss / MIB for name, process in found.items()}


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
        assert wrong.returncode == ExitCode.NOT_FOUND
        assert f"which serves {MODEL}" in " ".join(wrong.stderr.split())
        report = answer(
            "load", MODEL, "--rate", "4", "--for", "2s", "--max-tokens", "4", cwd=folder
        )
        assert (report["sent"], report["ok"]) == (8, 8)
        memory = beside_engine_mib(psutil.Process(serving.process.pid))
        print({name: f"{mib:.1f} MiB" for name, mib in memory.items()})  # noqa: T201 - the figures
        assert sum(memory.values()) < BESIDE_ENGINE_MIB, memory
        second = fmesh("serve", MODEL, cwd=folder)
        assert (second.returncode, "another `fmesh serve`" in second.stderr) == (
            ExitCode.USAGE,
            True,
        )
        (router,) = (
            child
            for child in psutil.Process(serving.process.pid).children()
            if ROUTER in child.cmdline()
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


@pytest.mark.slow
@pytest.mark.model
def test_a_local_folder_answers_embeddings(folder: Path, tiny_model: Path) -> None:
    shutil.copytree(tiny_model, folder / "my-model")
    with started("serve", "./my-model", "--embeddings", cwd=folder) as serving:
        serving.until("Ctrl-C stops")
        found = json.loads((folder / ".flowmesh" / "serving" / "endpoint.json").read_text())
        token = found["tokens"]["my-model"]
        with openai.OpenAI(base_url=found["url"], api_key=token) as client:
            answer = client.embeddings.create(model="my-model", input=["the fox", "a dog"])
            first, second = (item.embedding for item in answer.data)
            assert (len(first), math.hypot(*first)) == (64, pytest.approx(1, rel=1e-4))
            assert first != second
        wrong = fmesh("call", "my-model", "Hello!", cwd=folder)
        assert wrong.returncode == ExitCode.REFUSED
        assert "it answers /v1/embeddings. `fmesh serve MODEL` serves it" in wrong.stderr
        serving.process.send_signal(signal.SIGINT)
        assert serving.end() == ExitCode.OK


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["m", "--tool-parser", "hermess"], "no tool parser 'hermess'; did you mean 'hermes'?"),
        (["m", "--tool-parser", "hermes", "--embeddings"], "call no tools"),
        (["./nowhere"], "nowhere does not exist"),
        (["hf://a/m", "hf://A/m"], "the same name as that of hf://a/m"),
    ],
)
def test_what_cannot_be_served_is_refused_at_once(
    folder: Path, arguments: list[str], said: str
) -> None:
    done = fmesh("serve", *arguments, cwd=folder)
    assert done.returncode == ExitCode.USAGE
    assert said in " ".join(done.stderr.split())
    assert not (folder / ".flowmesh" / "serving").exists()


def test_the_names_of_tool_parsers_are_vllms() -> None:
    names = tool_parser_names()
    assert {"hermes", "llama3_json", "mistral"} <= set(names)
