"""Runs the attempts of ``llm.generate`` alone and with calls beside them, in one process.

Prints, as JSON, the rows of the batch alone, beside calls, and beside calls whose sampling
parameters are not rewritten (the sabotage: it must change the rows). Where the key-value cache has
a few blocks only, calls take those of the batch's requests, which vLLM preempts and computes again.
"""

import asyncio
import contextlib
import ctypes
import itertools
import json
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
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
from flowmesh_worker.engines.llm import openai_serving, vllm_backend
from flowmesh_worker.engines.llm.generate import LlmGenerate
from flowmesh_worker.llm_settings import VARIABLE

_FOXES = 92
"""With so many words a call fills a block of the cache and, before its end, begins another."""
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


@dataclass(frozen=True)
class Load:
    """How much an engine gets.

    Attributes:
        memory_mib: of its host, which leaves the key-value cache what the model does not need.
        rows: of the batch.
        clients: of calls; each makes its next one, of the next kind, when the last has ended.
    """

    memory_mib: int
    rows: int
    clients: int


LOADS = {
    "roomy": Load(2048, rows=64, clients=16),
    # Few blocks. More clients would keep the batch, whose priority is lower, from its end.
    "tight": Load(1103, rows=12, clients=3),
}


class Preemptions:
    """Counts the attempts' and the calls' requests that vLLM's scheduler preempts.

    It does so in the engine core's process, which is forked from this one.
    """

    def __init__(self) -> None:
        self._counts = {name: multiprocessing.Value(ctypes.c_int64) for name in ("batch", "calls")}

    def count_in(self, start: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function that starts an engine whose preemptions are counted."""

        def started(*given: Any) -> Any:
            from vllm.v1.core.sched.scheduler import Scheduler

            preempt = Scheduler._preempt_request

            def counted(scheduler: Any, request: Any, *more: Any, **named: Any) -> None:
                name = "batch" if request.request_id.startswith("batch-") else "calls"
                self._counts[name].value += 1
                preempt(scheduler, request, *more, **named)

            Scheduler._preempt_request = counted
            return start(*given)

        return started

    def take(self) -> dict[str, int]:
        """Returns how many there were since the last time."""
        found = {name: count.value for name, count in self._counts.items()}
        for count in self._counts.values():
            count.value = 0
        return found


async def batch(engine: LlmGenerate, folder: Path, number: int, load: Load) -> list[dict[str, Any]]:
    """Returns the rows of one action."""
    given = [{"p": f"{row} the quick brown fox"} for row in range(load.rows)]
    manifest, blobs = as_single_chunk(given)
    files = tuple(blobs[chunk.blob] for chunk in manifest.chunks)
    params = {"prompt": "{{ p }}", "temperature": 0.7, "maxTokens": 96, "samples": 2, "seed": 7}
    name = f"batch-{number}"
    rows = {"rows": DatasetInput(manifest, files)}
    work = Work(name, name, params, {}, rows, folder / name)
    result = await engine.run(work, lambda *_: None)
    output = result.outputs["rows"]
    assert isinstance(output, Rows)
    return [dict(row) for row in output.rows]


async def call(engine: LlmGenerate, number: int, kind: str) -> None:
    """Makes one call; of the kind ``cancelled`` the client leaves after two events."""
    content = f"{number}{' fox' * (_FOXES if number % 2 else 1)}"
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 12}
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


async def beside(
    engine: LlmGenerate, folder: Path, number: int, load: Load
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Returns the rows of an action beside calls, and how many of each kind ended during it."""
    running = asyncio.ensure_future(batch(engine, folder, number, load))
    # With an odd number of them in turn, each kind has long prompts and short ones.
    kinds = zip(itertools.count(number * 100_000), itertools.cycle([*KINDS, ""]))
    ended = Counter(dict.fromkeys(KINDS, 0))

    async def client() -> None:
        while not running.done():
            count, kind = next(kinds)
            if kind:
                await call(engine, count, kind)
                ended[kind] += not running.done()

    await asyncio.gather(*(client() for _ in range(load.clients)))
    return await running, ended


async def main(model: Path, folder: Path, load: Load) -> dict[str, Any]:
    engine, preemptions = LlmGenerate(), Preemptions()
    vllm_backend.start_async_llm = preemptions.count_in(vllm_backend.start_async_llm)
    params = {"dtype": "float32", "batchInvariant": True, "implementation": "vllm"}
    os.environ[VARIABLE] = '{"maxNumBatchedTokens": 512}'  # the model's context, in 2 MiB a step
    settings = HostSettings((), load.memory_mib, 2, params, folder)
    await engine.load({"model": TreeInput("0" * 64, model)}, settings)
    found: dict[str, Any] = {"alone": await batch(engine, folder, 1, load)}
    found["preempted alone"] = preemptions.take()
    found["beside"], found["calls"] = await beside(engine, folder, 2, load)
    found["preempted beside"] = preemptions.take()
    openai_serving.with_generator = lambda params: params
    found["spoiled"], _ = await beside(engine, folder, 3, load)
    await engine.close()
    return found


if __name__ == "__main__":
    Path(sys.argv[2]).mkdir()
    found = asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), LOADS[sys.argv[4]]))
    Path(sys.argv[3]).write_text(json.dumps(found))
