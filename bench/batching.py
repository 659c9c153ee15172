"""Compares eight workflows of eight prompts through the fabric with the engine alone.

``make bench-batching``: in interleaved rounds, the same 64 prompts with the same settings go (1) to
a raw ``AsyncLLM`` all at once, (2) to it one at a time (the first eight), and (3) as eight tenants'
workflows through admission, identity, scheduler, gateway, agent and engine host, into one running
engine. The engine is warm in all three, and every completion must be the same in all three.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from fabric import Bench
from generate import (
    BUILTIN,
    MAX_TOKENS,
    STEP_SEED,
    TEMPERATURE,
    Outcome,
    RawVllm,
    builtin_model,
    measure,
    median_rate,
    prompts,
    same_completions,
)

from flowmesh_worker.engine_api import HostSettings

WORKFLOWS = 8
ALONE = 8
MEMORY_MIB = 8192


class Fabric:
    """One control plane and one worker; a pass is eight runs at once."""

    def __init__(self, bench: Bench) -> None:
        """Uses a started fabric.

        The caller sets ``tokens``, the number that a pass generates: the raw engine counts it, and
        the texts are compared.
        """
        self._bench = bench
        self._passes = 0
        self.tokens = 0

    async def together(self, texts: list[str]) -> Outcome:
        """Runs all prompts at once, an eighth of them in each of eight tenants' workflows."""
        self._passes += 1
        began = time.perf_counter()
        parts = [texts[n::WORKFLOWS] for n in range(WORKFLOWS)]
        uids = await asyncio.gather(*(self._submit(n, p) for n, p in enumerate(parts) if p))
        ends = await asyncio.gather(*map(self._bench.ended, uids))
        seconds = time.perf_counter() - began
        failed = [e.message for e in ends if e.phase != "Succeeded"]
        if failed:
            raise RuntimeError(failed[0])
        rows = [row for uid in uids for row in await self._bench.rows(uid, "rows")]
        return Outcome({row["text"]: row["completion"] for row in rows}, self.tokens, seconds)

    async def _submit(self, tenant: int, texts: list[str]) -> str:
        return await self._bench.submit(
            {
                "apiVersion": "flowmesh.dev/v1alpha1",
                "kind": "FlowMeshWorkflow",
                "metadata": {"name": f"pass-{self._passes}", "namespace": f"team-{tenant}"},
                "spec": {
                    "inputs": {
                        "base": {"model": BUILTIN.partition(":")[2]},
                        "texts": {"rows": [{"text": t} for t in texts]},
                    },
                    "steps": [
                        {
                            "name": "sample",
                            "uses": "llm.generate",
                            "inputs": {"model": "inputs.base", "rows": "inputs.texts"},
                            "with": {
                                "prompt": "{{ text }}",
                                "dtype": "float32",
                                "temperature": TEMPERATURE,
                                "maxTokens": MAX_TOKENS,
                                "seed": STEP_SEED,
                            },
                            "cache": {"salt": str(self._passes)},
                            "resources": {"memory": f"{MEMORY_MIB}Mi"},
                        }
                    ],
                    "outputs": {"rows": "sample.rows"},
                },
            }
        )


async def _run(folder: Path, rounds: int) -> dict[str, Any]:
    texts = prompts()
    model = builtin_model(folder)
    settings = HostSettings((), MEMORY_MIB, 2, {"dtype": "float32", "batchInvariant": True}, folder)
    bench = Bench(folder, workers=1, memory_mib=MEMORY_MIB + 2048)
    await bench.start()
    try:
        fabric = Fabric(bench)
        await fabric.together(texts[:WORKFLOWS])  # imports the model and loads the engine
        raw = await RawVllm.start(model, settings)
        fabric.tokens = (await raw.together(texts)).tokens
        found = await measure(
            {
                "raw, 64 at once": lambda: raw.together(texts),
                "raw, one at a time": lambda: raw.one_at_a_time(texts[:ALONE]),
                "fabric, 8 workflows of 8": lambda: fabric.together(texts),
            },
            rounds,
        )
        await raw.stop()
    finally:
        await bench.stop()
    together, alone, through = found.values()
    pairs = list(zip(through, together, strict=True))
    return {
        "tokens_per_s": {name: round(median_rate(o), 1) for name, o in found.items()},
        "fabric / one at a time": round(median_rate(through) / median_rate(alone), 2),
        "fabric / raw at once": round(statistics.median(a.rate / b.rate for a, b in pairs), 3),
        "spread of fabric / raw": [round(a.rate / b.rate, 3) for a, b in pairs],
        "same completions": all(
            same_completions(together[0], o) for outcomes in found.values() for o in outcomes
        ),
    }


def main() -> None:
    """Prints the medians and ratios as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(_run(Path(folder), arguments.rounds)), indent=2))


if __name__ == "__main__":
    main()
