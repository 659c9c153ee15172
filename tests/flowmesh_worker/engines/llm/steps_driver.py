"""Measures the steps of a real engine at several numbers of sequences; prints them as JSON."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from flowmesh_core.openai.request import COMPLETIONS
from flowmesh_worker.engine_api import HostSettings, ServingCall, TreeInput
from flowmesh_worker.engines.llm.generate import LlmGenerate

_TOKENS = 40
_SIZES = (1, 4, 16, 32)


async def decode(engine: LlmGenerate, sequences: int) -> None:
    """Has so many sequences decode side by side."""
    body = {"prompt": "the quick brown fox", "max_tokens": _TOKENS, "n": 1, "temperature": 1}
    calls = (
        ServingCall(f"{sequences}-{i}", COMPLETIONS, "m", {**body, "ignore_eos": True}, "", 1, i)
        for i in range(sequences)
    )
    for answer in await asyncio.gather(*map(engine.answer, calls)):
        assert answer.status == 200, answer.body


async def prefill(engine: LlmGenerate) -> None:
    """Has prompts of several lengths computed."""
    for length in (30, 60, 120, 240):
        prompt = f"{length} " + "fox " * length
        call = ServingCall(f"p{length}", COMPLETIONS, "m", {"prompt": prompt, "max_tokens": 2})
        assert (await engine.answer(call)).status == 200


async def main(model: Path, folder: Path) -> dict[str, Any]:
    engine = LlmGenerate()
    params = {"dtype": "float32", "batchInvariant": True, "implementation": "vllm"}
    settings = HostSettings((), 2048, 2, params, folder)
    await engine.load({"model": TreeInput("0" * 64, model)}, settings)
    profile = engine._backend.places.profile  # type: ignore[union-attr]
    for size in _SIZES:
        await decode(engine, size)
    await prefill(engine)
    await engine.close()
    return {
        "sizes": _SIZES,
        "decoding": [(m.sequences, m.steps) for m in profile._decoding()],
        "prompts": sum(m.prompt_tokens for _, m in profile._weighted()),
        "fit": profile.fit() is not None,
    }


if __name__ == "__main__":
    Path(sys.argv[2]).mkdir(exist_ok=True)
    print(json.dumps(asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))))  # noqa: T201
