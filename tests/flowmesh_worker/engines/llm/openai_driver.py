"""Sends OpenAI's requests to one vLLM engine beside requests of ``llm.generate``.

Run as a program, as driver.py is. The job is JSON on standard input: the model's folder, and named
groups of calls, each group sent at once; a group may cancel one of its calls, or stream them. The
answers are JSON in the file that the job names.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from flowmesh_worker.engine_api import HostSettings
from flowmesh_worker.engines.llm import openai_serving
from flowmesh_worker.engines.llm.openai_serving import OpenAiCall, OpenAiServing
from flowmesh_worker.engines.llm.requests import Request, Sampling
from flowmesh_worker.engines.llm.vllm_backend import VllmBackend
from flowmesh_worker.engines.models.model_facts import read_facts

rewritten = openai_serving.with_generator
_SEEDED = Sampling(temperature=0.7, max_tokens=24)


async def batch_texts(backend: VllmBackend, group: str) -> list[str]:
    """Returns completions of seeded requests, as actions of a batch send them."""
    requests = [
        Request(f"{group}-batch-{i}", backend.tokenizer(f"fox {i}")["input_ids"], i, _SEEDED)
        for i in range(4)
    ]
    done = await asyncio.gather(*(backend.complete(r, lambda _: None) for r in requests))
    return [d.text for d in done]


async def streamed(serving: OpenAiServing, call: OpenAiCall) -> list[str]:
    return [
        event.decode() if isinstance(event, bytes) else json.dumps(event.body)
        async for event in serving.stream(call)
    ]


async def cancelled(serving: OpenAiServing, call: OpenAiCall) -> str:
    """Closes a stream after its first event with text."""
    events = serving.stream(call)
    async for event in events:
        if isinstance(event, bytes) and b'"content"' in event:
            break
    await events.aclose()
    return "closed"


async def run_group(
    backend: VllmBackend, serving: OpenAiServing, name: str, group: dict[str, Any]
) -> dict[str, Any]:
    way = {"answer": serving.answer, "stream": streamed, "cancel": cancelled}
    calls = []
    for i, given in enumerate(group["calls"]):
        call = OpenAiCall(
            given["path"], given["body"], f"{name}-{i}", seed=given.get("seed", i), cache_salt="s"
        )
        kind = given.get("way", "answer")
        calls.append(serving.answer(call) if kind == "answer" else way[kind](serving, call))
    batch = batch_texts(backend, name) if group.get("batch") else asyncio.sleep(0, [])
    texts, *answers = await asyncio.gather(batch, *calls)
    shown = [[a.status, a.body] if hasattr(a, "status") else a for a in answers]
    return {"batch": texts, "answers": shown}


async def main(job: dict[str, Any]) -> dict[str, Any]:
    signature = {"implementation": "vllm", "dtype": "float32", "batchInvariant": True}
    settings = HostSettings((), job.get("memory_mib", 4096), 2, signature, Path(job["folder"]))
    backend = await VllmBackend.start(read_facts(Path(job["model"])), settings)
    parser = job.get("tool_parser")
    serving = await OpenAiServing.create(backend.engine, "served", backend.grammars, parser)
    out = {}
    for name, group in job["groups"].items():
        generators = not group.get("without_generators")
        openai_serving.with_generator = rewritten if generators else lambda params: params
        out[name] = await run_group(backend, serving, name, group)
    await backend.close()
    return out


if __name__ == "__main__":
    given = json.load(sys.stdin)
    answer = asyncio.run(main(given))
    Path(given["answer"]).write_text(json.dumps(answer))
