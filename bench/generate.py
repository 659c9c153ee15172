"""Measures tokens per second of a language model under vLLM: all requests at once, and one by one.

``python bench/generate.py`` measures the ``AsyncLLM`` that a worker uses, with a worker's settings
and without a fabric, on 64 questions: all at once, and one after the other. Rounds are interleaved,
so that a slow moment of the machine affects both, and medians are shown. Other benchmarks use the
same functions: ``measure`` runs any named contestants, and ``same_completions`` compares the texts
of two of them.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowmesh_worker.engine_api import HostSettings
from flowmesh_worker.engines.llm.requests import Sampling, sample_seed
from flowmesh_worker.engines.llm.vllm_backend import prepare_start, sampling_params, stop_async_llm
from flowmesh_worker.engines.models.model_facts import read_facts
from flowmesh_worker.engines.prompts import Rendered

BUILTIN = "builtin:smollm2-135m-instruct"
PROMPT_COUNT = 64
MAX_TOKENS = 48
TEMPERATURE = 0.8
STEP_SEED = 7
_ALONE = 8
_THINGS = ("apples", "books", "tickets", "stones", "shells", "coins", "stamps", "cups")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one pass: texts by prompt, tokens and seconds."""

    texts: Mapping[str, str]
    tokens: int
    seconds: float

    @property
    def rate(self) -> float:
        """Generated tokens per second."""
        return self.tokens / self.seconds


Contestant = Callable[[], Awaitable[Outcome]]


def prompts(count: int = PROMPT_COUNT) -> list[str]:
    """Returns questions of one kind with different words, as rows of a data set."""
    return [
        f"Question: Ann has {i + 7} {_THINGS[i % 8]}, buys {3 * i % 17 + 2} more and gives"
        f" {i % 5 + 1} to each of {i % 3 + 2} friends. How many {_THINGS[i % 8]} are left?\nAnswer:"
        for i in range(count)
    ]


class RawVllm:
    """A worker's ``AsyncLLM``, used without engine, host, agent or control plane."""

    def __init__(
        self, engine: Any, thread: ThreadPoolExecutor, model: Path, max_tokens: int
    ) -> None:
        self._max_tokens = max_tokens
        self._engine = engine
        self._thread = thread
        self._passes = 0
        self._tokenizer = engine.get_tokenizer()
        self.model = model

    @classmethod
    async def start(
        cls, model: Path, settings: HostSettings, max_tokens: int = MAX_TOKENS
    ) -> "RawVllm":
        """Loads the model with exactly a worker's settings."""
        start = prepare_start(read_facts(model), settings)
        thread = ThreadPoolExecutor(max_workers=1)
        engine = await asyncio.get_running_loop().run_in_executor(thread, start)
        return cls(engine, thread, model, max_tokens)

    async def together(self, texts: Sequence[str], salt: str = "") -> Outcome:
        """Sends all prompts at once.

        Args:
            texts: the prompts, no two the same.
            salt: the salt of the prefix cache; if empty, each pass has its own, so that it does
                not reuse prefixes of an earlier pass.
        """
        self._passes += 1
        number = self._passes
        began = time.perf_counter()
        answers = await asyncio.gather(*(self._one(t, number, salt or str(number)) for t in texts))
        return self._outcome(texts, answers, began)

    async def one_at_a_time(self, texts: Sequence[str]) -> Outcome:
        """Sends each prompt after the previous one is answered."""
        self._passes += 1
        began = time.perf_counter()
        answers = [await self._one(t, self._passes, str(self._passes)) for t in texts]
        return self._outcome(texts, answers, began)

    async def stop(self) -> None:
        """Ends the engine."""
        await stop_async_llm(self._engine, self._thread)

    async def _one(self, text: str, number: int, salt: str) -> tuple[str, int]:
        from vllm.inputs.engine import tokens_input  # noqa: PLC0415 - vLLM is heavy

        parts, tokens = [], 0
        prompt = tokens_input(self._tokenizer(text)["input_ids"], cache_salt=salt)
        sampling = Sampling(temperature=TEMPERATURE, max_tokens=self._max_tokens)
        seed = sample_seed(STEP_SEED, Rendered(text=text).canonical(), 0)
        name = f"{number}/{text}"
        async for out in self._engine.generate(prompt, sampling_params(sampling, seed), name):
            parts.append(out.outputs[0].text)
            tokens += len(out.outputs[0].token_ids)
        return "".join(parts), tokens

    @staticmethod
    def _outcome(texts: Sequence[str], answers: Sequence[tuple[str, int]], began: float) -> Outcome:
        seconds = time.perf_counter() - began
        return Outcome(
            dict(zip(texts, (a for a, _ in answers), strict=True)),
            sum(n for _, n in answers),
            seconds,
        )


async def measure(contestants: Mapping[str, Contestant], rounds: int) -> dict[str, list[Outcome]]:
    """Runs each contestant in turn, ``rounds`` times."""
    found: dict[str, list[Outcome]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            found[name].append(await contestant())
    return found


def median_rate(outcomes: Sequence[Outcome]) -> float:
    """Returns the median of tokens per second."""
    return statistics.median(o.rate for o in outcomes)


def same_completions(one: Outcome, other: Outcome) -> bool:
    """Returns whether prompts that both answered got the same texts."""
    shared = one.texts.keys() & other.texts.keys()
    return bool(shared) and all(one.texts[p] == other.texts[p] for p in shared)


def builtin_model(folder: Path) -> Path:
    """Writes the built-in model to a directory, converted in a separate process."""
    program = (
        "import sys; from pathlib import Path;"
        "from flowmesh_worker.engines.models.builtin import build;"
        "build(sys.argv[1], Path(sys.argv[2]))"
    )
    target = folder / "model"
    name = BUILTIN.partition(":")[2]
    subprocess.run(
        [sys.executable, "-c", program, name, str(target)], check=True, capture_output=True
    )
    return target


async def _run(model: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    settings = HostSettings(
        devices=tuple(arguments.device or ()),
        memory_mib=arguments.memory_mib,
        threads=arguments.threads,
        signature_params={"dtype": "float32", "batchInvariant": True},
        scratch=model,
    )
    raw, texts = await RawVllm.start(model, settings), prompts()
    await raw.together(texts[:_ALONE])  # the first requests of an engine warm it
    found = await measure(
        {
            "together": lambda: raw.together(texts),
            "one at a time": lambda: raw.one_at_a_time(texts[:_ALONE]),
        },
        arguments.rounds,
    )
    await raw.stop()
    rates = {name: round(median_rate(outcomes), 1) for name, outcomes in found.items()}
    equal = all(same_completions(found["together"][0], o) for x in found.values() for o in x)
    ratio = round(rates["together"] / rates["one at a time"], 2)
    return {"tokens_per_s": rates, "ratio": ratio, "same_completions": equal}


def main() -> None:
    """Prints the medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--model", type=Path, help="a model directory; the built-in model by default"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory-mib", type=int, default=8192)
    parser.add_argument("--device", type=int, action="append", help="a GPU's index")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or builtin_model(Path(folder))
        print(json.dumps(asyncio.run(_run(model, arguments)), indent=2))


if __name__ == "__main__":
    main()
