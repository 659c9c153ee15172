"""Measures the cost of LoRA support: why requests with and without adapters use two engines.

``make bench-adapters``: sends the same 64 prompts, in interleaved rounds, to (1) an engine without
LoRA support, (2) an engine with it and no adapter in the requests, (3) the same engine with eight
adapters of rank 16 in the requests. Two engines of one model are in memory.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from generate import (
    MAX_TOKENS,
    STEP_SEED,
    TEMPERATURE,
    Outcome,
    builtin_model,
    measure,
    median_rate,
    prompts,
    same_completions,
)
from safetensors.numpy import save_file

from flowmesh_worker.engine_api import HostSettings, TreeInput
from flowmesh_worker.engines.llm.adapters import ADAPTER, LoraTargets
from flowmesh_worker.engines.llm.requests import Request, Sampling, sample_seed
from flowmesh_worker.engines.llm.vllm_backend import VllmBackend
from flowmesh_worker.engines.prompts import Rendered

ADAPTERS = 8
RANK = 16
MEMORY_MIB = 6144


def write_adapter(folder: Path, layers: LoraTargets, seed: int) -> TreeInput:
    """Writes a LoRA adapter with random weights for every linear layer."""
    folder.mkdir(parents=True)
    random, weights = np.random.default_rng(seed), {}
    for name, (outputs, inputs) in layers.layers.items():
        for side, shape in (("A", (RANK, inputs)), ("B", (outputs, RANK))):
            drawn = random.standard_normal(shape, np.float32) * 0.02
            weights[f"base_model.model.{name}.lora_{side}.weight"] = drawn
    save_file(weights, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK}
    config["target_modules"] = sorted(layers.names)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return TreeInput(f"{seed:064x}", folder)


class Engine:
    """One vLLM engine as a worker starts it."""

    def __init__(self, backend: VllmBackend) -> None:
        self._backend = backend
        self._passes = 0

    @classmethod
    async def start(cls, model: Path, scratch: Path, mixed: frozenset[str]) -> "Engine":
        """Starts an engine that takes adapters, or one that does not."""
        from flowmesh_worker.engines.models.model_facts import read_facts  # noqa: PLC0415

        params = {"dtype": "float32", "batchInvariant": True}
        settings = HostSettings((), MEMORY_MIB, 2, params, scratch, mixed)
        return cls(await VllmBackend.start(read_facts(model), settings))

    async def together(self, texts: Sequence[str], adapters: Sequence[TreeInput]) -> Outcome:
        """Sends all prompts at once, with the adapters in rotation."""
        self._passes += 1
        began = time.perf_counter()
        given = [adapters[i % len(adapters)] if adapters else None for i in range(len(texts))]
        answers = await asyncio.gather(*map(self._one, texts, given))
        seconds = time.perf_counter() - began
        tokens = sum(a.tokens_out for a in answers)
        return Outcome({t: a.text for t, a in zip(texts, answers, strict=True)}, tokens, seconds)

    async def _one(self, text: str, adapter: TreeInput | None) -> Any:
        request = Request(
            id=f"{self._passes}/{text}",
            token_ids=self._backend.tokenizer(text)["input_ids"],
            seed=sample_seed(STEP_SEED, Rendered(text=text).canonical(), 0),
            sampling=Sampling(temperature=TEMPERATURE, max_tokens=MAX_TOKENS),
            cache_salt=str(self._passes),
            adapter=adapter,
        )
        return await self._backend.complete(request, lambda _: None)

    async def stop(self) -> None:
        """Ends the engine."""
        await self._backend.close()


async def _run(folder: Path, rounds: int, count: int) -> dict[str, Any]:
    model, texts = builtin_model(folder), prompts(count)
    layers = LoraTargets.of_model(model)
    adapters = [write_adapter(folder / f"adapter-{n}", layers, n) for n in range(1, ADAPTERS + 1)]
    without = await Engine.start(model, folder, frozenset())
    takes = await Engine.start(model, folder, frozenset({ADAPTER}))
    for engine in (without, takes):
        await engine.together(texts[:8], [])
    await takes.together(texts[:8], adapters)
    found = await measure(
        {
            "without": lambda: without.together(texts, []),
            "takes adapters, none asked for": lambda: takes.together(texts, []),
            "eight adapters": lambda: takes.together(texts, adapters),
        },
        rounds,
    )
    for engine in (without, takes):
        await engine.stop()
    plain, idle, mixed = found.values()
    return {
        "tokens_per_s": {name: round(median_rate(o), 1) for name, o in found.items()},
        "idle / without": round(median_rate(idle) / median_rate(plain), 3),
        "eight adapters / without": round(median_rate(mixed) / median_rate(plain), 3),
        "slot_mib": layers.slot_bytes(4) >> 20,
        "same completions without an adapter": all(
            same_completions(plain[0], o) for o in (*plain, *idle)
        ),
        "same completions with adapters": all(same_completions(mixed[0], o) for o in mixed),
    }


def main() -> None:
    """Prints medians and ratios as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=64)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(_run(Path(folder), arguments.rounds, arguments.prompts))
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
