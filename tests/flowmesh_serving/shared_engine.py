"""Runs the attempts of ``llm.generate`` alone and with calls beside them, in one process.

Prints, as JSON, the texts of the batch alone, beside calls, and beside calls whose sampling
parameters are not rewritten (the sabotage: it must change the texts).
"""

import asyncio
import contextlib
import itertools
import json
import sys
from pathlib import Path
from typing import Any

from flowmesh_core.openai.request import CHAT
from flowmesh_store.datasets.chunks import as_single_chunk
from flowmesh_worker.engine_api import (
    DatasetInput,
    HostSettings,
    Rows,
    ServingAnswer,
    ServingCall,
    TreeInput,
    Work,
)
from flowmesh_worker.engines.llm import openai_serving
from flowmesh_worker.engines.llm.generate import LlmGenerate

_EVERY_S = 0.05
_ROWS = [{"p": f"{number} the quick brown fox"} for number in range(12)]
_SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
_JSON = {"type": "json_schema", "json_schema": {"name": "n", "schema": _SCHEMA}}
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "greedy with a seed": {"temperature": 0, "seed": 3},
    "sampled": {"temperature": 0.7},
    "sampled with a seed": {"temperature": 0.7, "seed": 4},
    "several": {"temperature": 0.7, "n": 4},
    "log-probabilities": {"logprobs": True, "top_logprobs": 2},
    "schema": {"response_format": _JSON},
    "cancelled": {"temperature": 0},
}


async def batch(engine: LlmGenerate, folder: Path, number: int) -> list[str]:
    """Returns the texts of one action."""
    manifest, blobs = as_single_chunk(_ROWS)
    files = tuple(blobs[chunk.blob] for chunk in manifest.chunks)
    params = {"prompt": "{{ p }}", "temperature": 0.7, "maxTokens": 96, "samples": 2, "seed": 7}
    name = f"batch-{number}"
    rows = {"rows": DatasetInput(manifest, files)}
    work = Work(name, name, params, {}, rows, folder / name)
    result = await engine.run(work, lambda *_: None)
    output = result.outputs["rows"]
    assert isinstance(output, Rows)
    return [row["completion"] for row in output.rows]


async def call(engine: LlmGenerate, number: int, kind: str) -> None:
    """Makes one call; of the kind ``cancelled`` the client leaves after two events."""
    body = {"messages": [{"role": "user", "content": f"fox {number}"}], "max_tokens": 12}
    asked = ServingCall(f"c{number}", CHAT, "m", {**body, **KINDS[kind]}, "", 1 << 30, number)
    if kind != "cancelled":
        answer = await engine.answer(asked)
        assert answer.status == 200, answer.body
        return
    async with contextlib.aclosing(engine.stream(asked)) as events:  # type: ignore[type-var]
        count = 0
        async for event in events:
            assert not isinstance(event, ServingAnswer)
            count += 1
            if count == 2:
                return


async def beside(engine: LlmGenerate, folder: Path, number: int) -> tuple[list[str], int]:
    """Returns the texts of an action with 20 calls a second beside it, and how many there were."""
    running = asyncio.ensure_future(batch(engine, folder, number))
    calls = []
    for count, kind in enumerate(itertools.cycle(KINDS), number * 10_000):
        if running.done():
            break
        calls.append(asyncio.create_task(call(engine, count, kind)))
        await asyncio.sleep(_EVERY_S)
    await asyncio.gather(*calls)
    return await running, len(calls)


async def main(model: Path, folder: Path) -> dict[str, Any]:
    engine = LlmGenerate()
    params = {"dtype": "float32", "batchInvariant": True, "implementation": "vllm"}
    settings = HostSettings((), 2048, 2, params, folder)
    await engine.load({"model": TreeInput("0" * 64, model)}, settings)
    alone = await batch(engine, folder, 1)
    again, calls = await beside(engine, folder, 2)
    openai_serving.with_generator = lambda params: params
    spoiled, _ = await beside(engine, folder, 3)
    await engine.close()
    return {"alone": alone, "beside": again, "calls": calls, "spoiled": spoiled}


if __name__ == "__main__":
    Path(sys.argv[2]).mkdir()
    found = asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
    Path(sys.argv[3]).write_text(json.dumps(found))
