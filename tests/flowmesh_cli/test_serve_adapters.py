"""``fmesh serve --adapter``: answers equal those of a workflow's step with the same adapter."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer, end_workers, fmesh, started

from flowmesh_cli.exit_codes import ExitCode

pytestmark = [pytest.mark.slow, pytest.mark.model]

PROGRAM = Path(__file__).parents[1] / "flowmesh_worker" / "engines" / "llm" / "tiny_model.py"
MODEL = "tiny"
ADAPTERS: dict[str, dict[str, Any]] = {
    "small": {"r": 4, "target_modules": ["q_proj", "v_proj"], "seed": 1},
    "wide": {"r": 16, "lora_alpha": 64, "target_modules": ["down_proj", "q_proj"], "seed": 2},
}
PROMPTS = [f"the {word} fox" for word in ("quick", "brown", "lazy", "over", "jumps", "dog")]
TOKENS = 12


@pytest.fixture
def folder(tmp_path: Path, tiny_model: Path) -> Iterator[Path]:
    """A folder with the tiny model and its adapters."""
    shutil.copytree(tiny_model, tmp_path / MODEL)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path / MODEL), json.dumps(ADAPTERS)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    yield tmp_path
    end_workers(tmp_path)


def workflow() -> dict[str, Any]:
    """Returns steps that complete all prompts by the base, and by each adapter."""
    given = {"prompt": "{{ text }}", "dtype": "float32", "maxTokens": TOKENS, "temperature": 0}
    steps = [
        {
            "name": name or "base",
            "uses": "llm.generate",
            "inputs": {
                "model": "inputs.base",
                "rows": "inputs.prompts",
                **({"adapter": f"inputs.{name}"} if name else {}),
            },
            "with": given,
        }
        for name in ("", *ADAPTERS)
    ]
    return {
        "inputs": {
            "base": {"model": f"./{MODEL}"},
            "prompts": {"rows": [{"text": text} for text in PROMPTS]},
            **{name: {"adapter": f"./{name}"} for name in ADAPTERS},
        },
        "steps": steps,
        "outputs": {step["name"]: f"{step['name']}.rows" for step in steps},
    }


def expected(folder: Path) -> dict[str, list[str]]:
    """Runs the workflow; returns the completions by the step."""
    path = flows.write(folder, "flow", workflow(), namespace="default")
    done = fmesh("run", path, cwd=folder)
    assert done.returncode == ExitCode.OK, done.stderr
    done = fmesh("outputs", "flow", "--download", "made", cwd=folder)
    assert done.returncode == ExitCode.OK, done.stderr
    found = {}
    for name in ("base", *ADAPTERS):
        lines = (folder / "made" / f"{name}.jsonl").read_text().splitlines()
        rows = {row["text"]: row["completion"] for row in map(json.loads, lines)}
        found[name] = [rows[text] for text in PROMPTS]
    return found


async def completed(client: openai.AsyncOpenAI) -> dict[str, list[str]]:
    """Completes all prompts by all names, in flight together; returns the texts by adapter."""

    async def one(name: str, text: str) -> str:
        model = MODEL if name == "base" else f"{MODEL}:{name}"
        made = await client.completions.create(
            model=model, prompt=text, max_tokens=TOKENS, temperature=0
        )
        assert made.model == model
        return made.choices[0].text

    names = ("base", *ADAPTERS)
    asked = [(name, text) for text in PROMPTS for name in names]  # each batch has all of them
    texts = await asyncio.gather(*(one(*each) for each in asked))
    found: dict[str, list[str]] = {name: [] for name in names}
    for (name, _), text in zip(asked, texts, strict=True):
        found[name].append(text)
    return found


async def test_answers_by_an_adapter_equal_those_of_a_step_with_it(folder: Path) -> None:
    wanted = expected(folder)
    assert len({tuple(texts) for texts in wanted.values()}) == 1 + len(ADAPTERS)
    adapters = [x for name in ADAPTERS for x in ("--adapter", f"{name}=./{name}")]
    with started("serve", f"./{MODEL}", "--dtype", "float32", *adapters, cwd=folder) as serving:
        serving.until("Ctrl-C stops")
        found = json.loads((folder / ".flowmesh" / "serving" / "endpoint.json").read_text())
        token = found["tokens"][MODEL]
        async with openai.AsyncOpenAI(base_url=found["url"], api_key=token) as client:
            for _ in range(3):
                assert await completed(client) == wanted
            listed = [model.id async for model in client.models.list()]
            assert listed == [MODEL, *(f"{MODEL}:{name}" for name in ADAPTERS)]
        called = fmesh("call", f"{MODEL}:small", "the", "--max-tokens", "2", cwd=folder)
        assert called.returncode == ExitCode.OK, called.stderr
        wrong = fmesh("call", f"{MODEL}:other", "the", cwd=folder)
        assert wrong.returncode == ExitCode.REFUSED
        assert f"expected {MODEL}:small, {MODEL}:wide" in " ".join(wrong.stderr.split())
        serving.process.send_signal(signal.SIGINT)
        assert serving.end() == ExitCode.OK


def test_an_adapter_that_vllm_would_serve_wrongly_fails_the_service_with_its_reason(
    folder: Path,
) -> None:
    config = folder / "small" / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"use_dora": True}))
    arguments = ("serve", f"./{MODEL}", "--dtype", "float32", "--adapter", "small=./small")
    with started(*arguments, cwd=folder) as serving:
        serving.until("use_dora")


def test_an_output_of_a_workflow_is_an_adapter_too(folder: Path) -> None:
    spec = {
        "inputs": {"small": {"adapter": "./small"}, "rows": {"rows": [{"a": 1}]}},
        "steps": [
            {
                "name": "look",
                "uses": "data.sql",
                "inputs": {"rows": "inputs.rows"},
                "with": {"query": "select a from rows"},
            }
        ],
        "outputs": {"adapter": "inputs.small"},
    }
    path = flows.write(folder, "tune", spec, namespace="default")
    done = fmesh("run", path, cwd=folder)
    assert done.returncode == ExitCode.OK, done.stderr
    arguments = ("serve", f"./{MODEL}", "--dtype", "float32", "--adapter", "small=tune/adapter")
    with started(*arguments, cwd=folder) as serving:
        serving.until("Ctrl-C stops")
        name = f"{MODEL}:small"
        made = answer("call", name, "the", "--max-tokens", "4", cwd=folder)
        assert made["model"] == name
        serving.process.send_signal(signal.SIGINT)
        assert serving.end() == ExitCode.OK
