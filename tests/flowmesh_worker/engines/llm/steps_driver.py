"""Measures the steps of a real engine at several numbers of sequences; prints them as JSON.

The line that is fitted to steps of 1, 4, 16 and 32 sequences predicts those of 8, which are
measured in turn with them but kept apart; calls with long prompts give it its prompt tokens.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from flowmesh_core.openai.request import COMPLETIONS
from flowmesh_core.serving.queue.step_profile import StepProfile
from flowmesh_worker.engine_api import HostSettings, ServingCall, TreeInput
from flowmesh_worker.engines.llm.generate import LlmGenerate

_TOKENS = 40
_ROUNDS = 8
_SIZES = (1, 4, 16, 32)
_HELD_OUT = 8


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
    places = engine._backend.places  # type: ignore[union-attr]
    profiles = dict.fromkeys(_SIZES, StepProfile()) | {_HELD_OUT: StepProfile()}
    await decode(engine, 2)
    for _ in range(_ROUNDS):
        for size, profile in profiles.items():
            places.profile = profile
            await decode(engine, size)
        places.profile = profiles[1]
        await prefill(engine)
    fit = profiles[1].fit()
    assert fit is not None
    measured = profiles[_HELD_OUT]._decoding()[-1]
    await engine.close()
    return {
        "fit": [fit.base_s, fit.sequence_s, fit.prompt_token_s],
        "decoding": [(m.sequences, m.seconds, m.steps) for m in profiles[1]._decoding()],
        "held out": [measured.sequences, measured.seconds, fit.seconds(measured.sequences)],
    }


if __name__ == "__main__":
    Path(sys.argv[2]).mkdir(exist_ok=True)
    print(json.dumps(asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))))  # noqa: T201
