"""``fmesh serve`` of the built-in model answers as vLLM's own server does, byte for byte."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.builtin_model import NAME, builtin_model
from tests.flowmesh_cli.calling import end_workers, started
from tests.flowmesh_serving.test_beside_vllm import FIXED, alike, answers, vllm_serve

from flowmesh_cli.exit_codes import ExitCode

pytestmark = [pytest.mark.nightly, pytest.mark.model]

OTHER_SEED = {**FIXED, "seed": 2}
OTHER_SAMPLER = {**FIXED, "temperature": 1.5}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_workers(tmp_path)


def unlike(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Returns the names of the answers that differ."""
    assert one.keys() == other.keys()
    return [name for name in one if not alike(one[name], other[name])]


async def test_answers_of_fmesh_serve_equal_those_of_vllm_serve(folder: Path) -> None:
    tools = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    server = vllm_serve(
        builtin_model(folder), folder / "vllm.log", *tools, name=NAME, kv_cache_mib=512
    )
    async with server as theirs:
        expected = await answers(theirs, NAME)
    with started("serve", NAME, "--tool-parser", "hermes", cwd=folder) as serving:
        serving.until("Ctrl-C stops")
        found = json.loads((folder / ".flowmesh" / "serving" / "endpoint.json").read_text())
        async with openai.AsyncOpenAI(base_url=found["url"], api_key=found["tokens"][NAME]) as ours:
            assert unlike(await answers(ours, NAME), expected) == []
            # Each must be noticed: another seed where an answer is sampled, and another sampler.
            assert {"chat 1", "completion 1"} <= set(
                unlike(await answers(ours, NAME, **OTHER_SEED), expected)
            )
            assert {"chat 0", "chat stream 0", "completion 0"} <= set(
                unlike(await answers(ours, NAME, **OTHER_SAMPLER), expected)
            )
        serving.process.send_signal(signal.SIGINT)
        assert serving.end() == ExitCode.OK
