"""Tenants that prompt one engine with the same long prefixes: a real vLLM in a process of its own.

``python prefix_observer.py < JOB``: the job is JSON (model, pairs, controls, words of a prefix, the
salts of two tenants, path of the answer), the answer JSON: of each sample the seconds to the first
token and the tokens that vLLM took from its prefix cache. Called by ``side_channels.py`` and by the
test of prefix caches. Requests go through ``llm.generate``, as a worker's do.
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from flowmesh_store.datasets.chunks import as_single_chunk
from flowmesh_worker.engine_api import DatasetInput, HostSettings, TreeInput, Work
from flowmesh_worker.engines.llm.generate import LlmGenerate

WORDS = ("tide", "iron", "salt", "road", "moon", "glass", "river", "stone")
ONE_TOKEN = {"prompt": "{{ p }}", "maxTokens": 1, "temperature": 0, "seed": 1}


class Prompter:
    """Sends prompts of one token's answer to an engine, one after the other."""

    def __init__(self, engine: Any, folder: Path) -> None:
        """Counts the cached tokens of each request from now on."""
        self._engine = engine
        self._folder = folder
        self._number = 0
        self._cached = -1
        llm = engine._backend.engine
        generate = llm.generate

        async def counted(*given: Any, **more: Any) -> Any:
            async for output in generate(*given, **more):
                self._cached = output.num_cached_tokens or 0
                yield output

        llm.generate = counted

    async def seconds(self, salt: str, prompt: str) -> dict[str, float]:
        """Returns the time to the first token and the tokens that were cached."""
        self._number += 1
        manifest, blobs = as_single_chunk([{"p": prompt}])
        files = []
        for chunk in manifest.chunks:
            files.append(self._folder / f"{self._number}.parquet")
            files[-1].write_bytes(blobs[chunk.blob])
        name = str(self._number)
        out = self._folder / f"{name}-out"
        out.mkdir()
        inputs = {"rows": DatasetInput(manifest, tuple(files))}
        work = Work(
            action_id=name, attempt_id=name, params=ONE_TOKEN, fields={}, inputs=inputs,
            out_dir=out, cache_salt=salt,
        )  # fmt: skip
        began = time.perf_counter()
        await self._engine.run(work, lambda *_: None)
        return {"seconds": time.perf_counter() - began, "cached": self._cached}


async def observe(job: dict[str, Any], folder: Path) -> dict[str, list[dict[str, float]]]:
    """Takes all samples: pairs of the other tenant's prefixes and of fresh ones, and own ones.

    Returns:
        By kind: ``others`` were sent by the other tenant before, ``own`` by the observer, ``fresh``
        by none.
    """
    engine = LlmGenerate()
    settings = HostSettings(
        devices=(),
        memory_mib=job["memory_mib"],
        threads=2,
        signature_params={"implementation": "vllm", "dtype": "auto", "batchInvariant": True},
        scratch=folder,
    )
    await engine.load({"model": TreeInput("0" * 64, Path(job["model"]))}, settings)
    prompter, rng = Prompter(engine, folder), Random(job.get("seed", 0))
    owner, observer = job["salts"]
    found: dict[str, list[dict[str, float]]] = {"others": [], "fresh": [], "own": []}
    await prompter.seconds(observer, "begin")
    for number in range(job["pairs"]):
        others, fresh = (_prefix(rng, job["words"]) for _ in range(2))
        await prompter.seconds(owner, f"{others} owner")
        asked = [("others", others), ("fresh", fresh)]
        rng.shuffle(asked)
        for kind, prefix in asked:
            found[kind].append(await prompter.seconds(observer, f"{prefix} asks"))
        if number < job["controls"]:
            found["own"].append(await prompter.seconds(observer, f"{fresh} again"))
    await engine.close()
    return found


def _prefix(rng: Random, words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words))


if __name__ == "__main__":
    given = json.load(sys.stdin)
    with tempfile.TemporaryDirectory(prefix="flowmesh-bench-") as scratch:
        answer = asyncio.run(observe(given, Path(scratch)))
    Path(given["answer"]).write_text(json.dumps(answer))
