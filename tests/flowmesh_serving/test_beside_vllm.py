"""Answers through router, hub and engine host equal those of ``vllm serve``, field by field."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.flowmesh_serving.stack import (
    MODEL,
    Host,
    replica_of,
    says,
    services,
    serving_stack,
    start_host_process,
    until,
)

from flowmesh_worker.engines.llm.vllm_sizes import SEQUENCES_CPU
from flowmesh_worker.ipc.frames import HostInput, Start

pytestmark = [pytest.mark.nightly, pytest.mark.model]

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["n"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]
EMBEDDINGS: tuple[dict[str, Any], ...] = (
    {"input": "the quick brown fox"},
    {"input": ["the", "a lazy dog", "the"], "user": "u"},
    {"input": "the", "encoding_format": "float"},
)
FIXED: dict[str, Any] = {"temperature": 0, "seed": 1}
CHATS: tuple[dict[str, Any], ...] = (
    {"max_tokens": 12},
    {"max_completion_tokens": 12, "n": 2, "temperature": 0.7},
    {"max_tokens": 24, "stop": ["ow"]},
    {"max_tokens": 6, "logprobs": True, "top_logprobs": 3},
    {"max_tokens": 6, "frequency_penalty": 0.5, "presence_penalty": 0.5},
    {
        "max_tokens": 24,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": SCHEMA},
        },
    },
)
WITH_TOOLS: tuple[dict[str, Any], ...] = (
    {"max_tokens": 24, "tools": TOOLS},
    {"max_tokens": 24, "tools": TOOLS, "tool_choice": "required"},
)
COMPLETIONS: tuple[dict[str, Any], ...] = (
    {"max_tokens": 12},
    {"max_tokens": 12, "n": 2, "stop": "ow", "temperature": 0.7},
    {"max_tokens": 6, "logprobs": 2},
)


async def test_answers_equal_those_of_vllm_serve(tiny_model: Path, tmp_path: Path) -> None:
    start = Start(
        "llm.generate",
        "flowmesh_worker.engines.llm.generate:LlmGenerate",
        {"model": HostInput("tree", "0" * 64, (str(tiny_model),))},
        (),
        2048,
        2,
        {"dtype": "float32", "batchInvariant": True, "implementation": "vllm"},
        "",
    )
    tools = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    async with vllm_serve(tiny_model, tmp_path / "vllm.log", *tools) as theirs:
        expected = await answers(theirs)
    async with (
        serving_stack(tmp_path, services(tool_parser="hermes")) as stack,
        stack.client as ours,
    ):
        host = await start_host_process(tmp_path / "host", start)
        await stack.hub.admit(replica_of(host))
        await stack.until_ready()
        found = await answers(ours)
        for name, answer in expected.items():
            assert alike(found[name], answer), (name, found[name], answer)
        await check_refusals(ours)
        await check_abort(ours, stack.hub._loads, host)
        await host.close()


def alike(one: Any, other: Any) -> bool:
    """Returns whether answers are equal; log-probabilities may differ in their fourth digit.

    They depend on the batch, of which vLLM's server and an engine host have different ones.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, abs=1e-3)
    return bool(one == other)


async def answers(client: openai.AsyncOpenAI, model: str = MODEL, **fixed: Any) -> dict[str, Any]:
    """Returns every answer without ids and times; of a stream, its text and end.

    Args:
        client: of the server.
        model: its name there.
        fixed: parameters of all requests, but for those that set them; ``FIXED`` without any.
    """
    fixed = fixed or FIXED
    found: dict[str, Any] = {}
    messages = says("the quick brown fox")
    for number, more in enumerate(CHATS):
        chat: Any = await client.chat.completions.create(
            model=model, messages=messages, **(fixed | more)
        )
        found[f"chat {number}"] = plain(chat)
        if more.get("n", 1) == 1:
            options = {"include_usage": True}
            stream: Any = await client.chat.completions.create(
                model=model,
                messages=messages,
                stream=True,
                stream_options=options,
                **(fixed | more),
            )
            chunks = [plain(chunk) async for chunk in stream]
            found[f"chat stream {number}"] = joined(chunks, "delta", "content")
            assert found[f"chat stream {number}"][0] == chat.choices[0].message.content
            assert chunks[-1]["usage"]["total_tokens"] == chat.usage.total_tokens
    for number, more in enumerate(WITH_TOOLS):
        chat = await client.chat.completions.create(
            model=model, messages=messages, **(fixed | more)
        )
        for call in chat.choices[0].message.tool_calls or ():
            call.id = ""  # random
        found[f"tools {number}"] = plain(chat)
    for number, more in enumerate(COMPLETIONS):
        whole: Any = await client.completions.create(model=model, prompt="the", **(fixed | more))
        found[f"completion {number}"] = plain(whole)
        if more.get("n", 1) == 1:
            stream = await client.completions.create(
                model=model, prompt="the", stream=True, **(fixed | more)
            )
            chunks = [plain(chunk) async for chunk in stream]
            assert all(chunk["choices"] for chunk in chunks)  # no usage that was not asked for
            found[f"completion stream {number}"] = joined(chunks, "", "text")
    return found


def plain(answer: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = answer.model_dump(mode="json")
    return {k: v for k, v in dumped.items() if k not in ("id", "created", "system_fingerprint")}


def joined(chunks: list[dict[str, Any]], part: str, name: str) -> tuple[str, list[Any]]:
    """Returns a stream's text and its reasons to end: how it is cut depends on timing."""
    choices = [c["choices"][0] for c in chunks if c["choices"]]
    texts = [(c[part] if part else c)[name] or "" for c in choices]
    return "".join(texts), [c["finish_reason"] for c in choices if c["finish_reason"]]


async def check_refusals(client: openai.AsyncOpenAI) -> None:
    """What only the engine can refuse is an error with a status, also of a stream."""
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match="maximum context length"):
            await client.chat.completions.create(
                model=MODEL, messages=says("fox " * 20_000), stream=stream
            )


async def check_abort(client: openai.AsyncOpenAI, loads: Any, host: Host) -> None:
    """A client that leaves frees its call, and the engine answers others."""
    stream: Any = await client.chat.completions.create(
        model=MODEL, messages=says("the"), max_tokens=400, stream=True
    )
    await anext(stream)
    await stream.close()
    await until(lambda: loads()[0].running == 0)
    await client.completions.create(model=MODEL, prompt="the", max_tokens=2)
    assert host.pid


async def test_embeddings_equal_those_of_vllm_serve(tiny_model: Path, tmp_path: Path) -> None:
    signature = {"dtype": "float32", "implementation": "vllm", "pooling": "auto"}
    start = Start(
        "llm.embed",
        "flowmesh_worker.engines.llm.embed:LlmEmbed",
        {"model": HostInput("tree", "0" * 64, (str(tiny_model),))},
        (),
        2048,
        2,
        signature,
        "",
    )
    async with vllm_serve(tiny_model, tmp_path / "vllm.log", "--runner", "pooling") as theirs:
        expected = [await theirs.embeddings.create(model=MODEL, **more) for more in EMBEDDINGS]
    async with serving_stack(tmp_path) as stack, stack.client as ours:
        host = await start_host_process(tmp_path / "host", start)
        await stack.hub.admit(replica_of(host))
        await stack.until_ready()
        for more, answer in zip(EMBEDDINGS, expected, strict=True):
            found = await ours.embeddings.create(model=MODEL, **more)
            assert alike(plain(found), plain(answer)), (found, answer)
        with pytest.raises(openai.BadRequestError, match="dimensions"):
            await ours.embeddings.create(model=MODEL, input="the", dimensions=8)
        with pytest.raises(openai.BadRequestError, match="maximum context length"):
            await ours.embeddings.create(model=MODEL, input="fox " * 20_000)
        with pytest.raises(openai.NotFoundError, match="it answers /v1/embeddings"):
            await ours.completions.create(model=MODEL, prompt="the")
        await until(lambda: bool(stack.usage) and stack.usage[-1].tokens > 0)
        await host.close()


@asynccontextmanager
async def vllm_serve(
    model: Path, log: Path, *more: str, name: str = MODEL, kv_cache_mib: int = 64
) -> AsyncIterator[openai.AsyncOpenAI]:
    """Runs vLLM's own server with the options that engine hosts use on a CPU, and more."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        # What `vllm serve` runs; the command itself looks for a distribution of another name.
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
        *("--served-model-name", name, "--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "float32", "--enforce-eager", "--no-enable-chunked-prefill"),
        *("--max-num-seqs", str(SEQUENCES_CPU), "--kv-cache-memory-bytes", str(kv_cache_mib << 20)),
        *("--structured-outputs-config", '{"backend":"xgrammar","disable_any_whitespace":true}'),
        *more,
    ]
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": "2",
    }
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=output, stderr=output, env=environment, start_new_session=True
        )
    client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none")
    try:
        await _until_up(client, process, log)
        yield client
    finally:
        await client.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        await process.wait()


async def _until_up(
    client: openai.AsyncOpenAI, process: asyncio.subprocess.Process, log: Path
) -> None:
    async with asyncio.timeout(600):
        while process.returncode is None:
            try:
                await client.models.list()
            except openai.APIConnectionError:
                await asyncio.sleep(0.2)
            else:
                return
    pytest.fail(f"vllm serve has ended; see {log}")
