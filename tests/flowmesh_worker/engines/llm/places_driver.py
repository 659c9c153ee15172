"""Runs a batch in a real engine alone, and beside calls where three sequences may run.

Prints the rows of both as JSON, how often a row was stopped, and the sizes of steps.
"""

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from flowmesh_core.openai.request import COMPLETIONS
from flowmesh_core.protocol.serving import TokenTargets
from flowmesh_store.datasets.chunks import as_single_chunk
from flowmesh_worker.engine_api import (
    DatasetInput,
    HostSettings,
    Rows,
    ServingCall,
    TreeInput,
    Work,
)
from flowmesh_worker.engines.llm.generate import LlmGenerate

LIMIT = 3
_ROWS, _CALLS, _CLIENTS = 12, 10, 2


async def batch(engine: LlmGenerate, folder: Path, name: str) -> list[dict[str, Any]]:
    """Returns the rows of one action, whose tokens are reported once each."""
    manifest, blobs = as_single_chunk([{"p": f"{row} the quick fox"} for row in range(_ROWS)])
    files = tuple(blobs[chunk.blob] for chunk in manifest.chunks)
    params = {"prompt": "{{ p }}", "temperature": 0.7, "maxTokens": 48, "seed": 7}
    params["ignoreEos"] = True
    done: list[float] = []
    work = Work(name, name, params, {}, {"rows": DatasetInput(manifest, files)}, folder / name)
    result = await engine.run(work, lambda now, *_: done.append(now))
    assert done == sorted(done)
    assert done[-1] == result.usage.tokens_out
    output = result.outputs["rows"]
    assert isinstance(output, Rows)
    return [dict(row) for row in output.rows]


async def client(engine: LlmGenerate, number: int) -> None:
    for one in range(_CALLS):
        body = {"prompt": f"{number} {one} lazy dog", "max_tokens": 8, "n": 1 + one % 2}
        name = f"c{number}-{one}"
        asked = ServingCall(name, COMPLETIONS, "m", {**body, "temperature": 0.7}, "", 1 << 30, one)
        assert (await engine.answer(asked)).status == 200


async def main(model: Path, folder: Path) -> dict[str, Any]:
    engine = LlmGenerate()
    params = {"dtype": "float32", "batchInvariant": True, "implementation": "vllm"}
    await engine.load(
        {"model": TreeInput("0" * 64, model)}, HostSettings((), 2048, 2, params, folder)
    )
    places = engine._backend.places  # type: ignore[union-attr]
    steps: Counter[int] = Counter()
    places.observe = lambda n, *_: steps.update([n])
    found: dict[str, Any] = {"alone": await batch(engine, folder, "alone")}
    found["steps alone"] = dict(steps)
    steps.clear()
    places.profile.sequences_within = lambda *_: LIMIT
    engine.use_targets(TokenTargets(tpot_s=1.0), lambda _: None)
    advance, stopped = places._queue.advance, []

    def counted() -> Any:
        changes = advance()
        stopped.extend(changes.stop)
        return changes

    places._queue.advance = counted
    running = asyncio.create_task(batch(engine, folder, "beside"))
    while not steps:  # noqa: ASYNC110 - the steps have no event
        await asyncio.sleep(0.001)
    await asyncio.gather(*(client(engine, n) for n in range(_CLIENTS)))
    found["beside"] = await running
    found["steps beside"], found["stopped"] = dict(steps), len(stopped)
    await engine.close()
    return found


if __name__ == "__main__":
    Path(sys.argv[2]).mkdir(exist_ok=True)
    print(json.dumps(asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))))  # noqa: T201
