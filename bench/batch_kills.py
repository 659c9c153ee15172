"""Measures what a batch pays for killed engines: tokens computed, over the tokens of its answers.

``make bench-batch-kills`` answers requests with ``llm.openai`` in a process of its own, kills it
with its engine core after each ``--every`` seconds of work, and starts it again from what was
published and from the newest checkpoints, as the fabric does. Tokens are counted where the engine
makes them, in a mapped file that outlives the process. It fails where a row is missing, or where
the tokens exceed ``--at-most`` times those of the answers.

It stands for an engine that is killed every minute, in less time: checkpoints are as much more
frequent than in a fabric as kills are more frequent than one a minute, and the model is the first
layer of SmolLM2 with short answers, few at once, so that a request takes about an eighteenth of the
period. Time is that of the engine's processes on the processor, since others may keep it busy.
"""

import argparse
import asyncio
import contextlib
import functools
import json
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generate import prompts
from shallow_model import shallow_model

from flowmesh_store.datasets.chunks import as_single_chunk
from flowmesh_worker.engine_api import DatasetInput, HostSettings, Rows, TreeInput, Work
from flowmesh_worker.engines.llm import answer_checkpoints, openai
from flowmesh_worker.engines.llm.openai import LlmOpenAi

ROWS_OF_ACTION = 32
"""As many as a chunk of a batch has."""
_COUNTERS = struct.Struct("qq")
_NO_DIGEST = "0" * 64
_MINUTE_S = 60.0


def processor_s(pid: int) -> float:
    """Returns the processor time of a process and of all that it started."""
    found = 0.0
    with contextlib.suppress(OSError):  # one that has just ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += int((task / "schedstat").read_text().split()[0]) / 1e9
            found += sum(map(processor_s, map(int, (task / "children").read_text().split())))
    return found


class TokenCounter:
    """Prompt and generated tokens of all processes, in a mapped file."""

    def __init__(self, path: Path) -> None:
        """Opens the file, or creates it."""
        if not path.exists():
            path.write_bytes(_COUNTERS.pack(0, 0))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _COUNTERS.size)

    @property
    def tokens(self) -> tuple[int, int]:
        """Prompt tokens, and generated ones."""
        prompt, generated = _COUNTERS.unpack(self._map[:])
        return prompt, generated

    def add(self, prompt: int, generated: int) -> None:
        """Adds tokens."""
        before = self.tokens
        self._map[:] = _COUNTERS.pack(before[0] + prompt, before[1] + generated)


@dataclass(frozen=True, slots=True)
class Batch:
    """The folder of a batch: its requests, checkpoints and answers."""

    folder: Path

    def answers(self, number: int) -> Path:
        """Returns the published answers of an action."""
        return self.folder / f"answers-{number}.json"

    def checkpoint(self, number: int) -> Path:
        """Returns the newest checkpoint of an action."""
        return self.folder / f"checkpoint-{number}"

    def publish(self, path: Path, text: str) -> None:
        """Writes a file whole or not at all."""
        new = path.with_suffix(".new")
        new.write_text(text)
        new.replace(path)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All requests."""
        found: list[dict[str, Any]] = json.loads((self.folder / "rows.json").read_text())
        return found


def requests(count: int, max_tokens: int) -> list[dict[str, Any]]:
    """Returns requests of different texts."""
    return [
        {
            "url": "/v1/chat/completions",
            "body": {
                "model": "m",
                "messages": [{"role": "user", "content": f"{number}. {text}"}],
                "max_tokens": max_tokens,
                "temperature": 0,
            },
        }
        for number, text in enumerate(prompts(count))
    ]


def count_tokens(engine: Any, counter: TokenCounter, at_once: int) -> None:
    """Counts the tokens that a running ``AsyncLLM`` makes, and bounds how many requests it has."""
    from vllm.sampling_params import RequestOutputKind  # noqa: PLC0415 - loaded by the engine

    generate, places = engine.generate, asyncio.Semaphore(at_once)

    async def counted(prompt: Any, params: Any, name: str, **more: Any) -> AsyncIterator[Any]:
        params.output_kind, known = RequestOutputKind.CUMULATIVE, -1
        async with places:
            async for output in generate(prompt, params, name, **more):
                tokens, prompts = len(output.outputs[0].token_ids), len(output.prompt_token_ids)
                counter.add(prompts if known < 0 else 0, tokens - max(known, 0))
                known = tokens
                yield output

    engine.generate = counted


async def answer(batch: Batch, model: Path, every_s: float, at_once: int) -> None:
    """Answers what has no answer yet; the process that is killed."""
    answer_checkpoints.EVERY_S *= every_s / _MINUTE_S
    openai.AnswerCheckpoints = functools.partial(  # type: ignore[assignment, misc]
        answer_checkpoints.AnswerCheckpoints, clock=lambda: processor_s(os.getpid())
    )
    engine = LlmOpenAi()
    scratch = Path(tempfile.mkdtemp(dir=batch.folder))
    signature = {"dtype": "float32", "batchInvariant": True}
    await engine.load(
        {"model": TreeInput(_NO_DIGEST, model)}, HostSettings((), 4096, 2, signature, scratch)
    )
    count_tokens(engine._backend.engine, TokenCounter(batch.folder / "tokens"), at_once)
    batch.publish(batch.folder / f"loaded-{os.getpid()}", "")
    rows = batch.rows
    parts = [rows[i : i + ROWS_OF_ACTION] for i in range(0, len(rows), ROWS_OF_ACTION)]
    left = [n for n in range(len(parts)) if not batch.answers(n).exists()]
    await asyncio.gather(*(_action(engine, batch, n, parts[n], scratch) for n in left))
    await engine.close()


async def _action(
    engine: LlmOpenAi, batch: Batch, number: int, rows: list[dict[str, Any]], scratch: Path
) -> None:
    manifest, blobs = as_single_chunk(rows)
    saved = batch.checkpoint(number)

    def checkpoint(path: Path, done: float) -> None:
        del done
        old = saved.with_suffix(".old")
        if saved.exists():
            saved.replace(old)
        path.replace(saved)
        shutil.rmtree(old, ignore_errors=True)

    if saved.with_suffix(".old").exists() and not saved.exists():
        saved.with_suffix(".old").replace(saved)
    work = Work(
        action_id=str(number),
        attempt_id=f"{os.getpid()}-{number}",
        params={},
        fields={},
        inputs={"rows": DatasetInput(manifest, tuple(blobs[c.blob] for c in manifest.chunks))},
        out_dir=scratch / str(number),
        priority=-number,
        resume=TreeInput(_NO_DIGEST, saved) if saved.exists() else None,
        checkpoint=checkpoint,
    )
    work.out_dir.mkdir()
    result = await engine.run(work, lambda *_: None)
    output = result.outputs["rows"]
    assert isinstance(output, Rows)
    batch.publish(batch.answers(number), json.dumps([r["response"] for r in output.rows]))


def run(batch: Batch, model: Path, every_s: float, at_once: int) -> int:
    """Starts the process again until it ends by itself; returns how often it was killed."""
    kills = 0
    while True:
        command = [sys.executable, __file__, "--answer", str(batch.folder)]
        command += ["--model", str(model), "--every", str(every_s)]
        command += ["--at-once", str(at_once)]
        process = subprocess.Popen(command, start_new_session=True)
        loaded = batch.folder / f"loaded-{process.pid}"
        while not loaded.exists() and process.poll() is None:
            time.sleep(0.1)
        began_s = processor_s(process.pid)
        while process.poll() is None and processor_s(process.pid) - began_s < every_s:
            time.sleep(0.05)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
        elif process.returncode:
            sys.exit(f"the process ended with code {process.returncode}")
        else:
            return kills


def report(batch: Batch, kills: int, every_s: float, at_most: float) -> int:
    """Prints the figures; returns 1 where a row is missing or too much was paid."""
    rows = batch.rows
    found = [
        response
        for number in range(-(-len(rows) // ROWS_OF_ACTION))
        for response in json.loads(batch.answers(number).read_text())
    ]
    usages = [r["body"]["usage"] for r in found if r["status_code"] == 200]
    needed = sum(u["total_tokens"] for u in usages)
    prompt, generated = TokenCounter(batch.folder / "tokens").tokens
    figures = {
        "rows": len(rows),
        "answered": len(usages),
        "kills": kills,
        "every_s": every_s,
        "tokens_of_answers": needed,
        "prompt_tokens": prompt,
        "generated_tokens": generated,
        "ratio": round((prompt + generated) / needed, 4),
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    return int(len(usages) != len(rows) or figures["ratio"] > at_most)


def main() -> int:
    """Runs the benchmark, or the process that it kills."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--max-tokens", type=int, default=4)
    parser.add_argument("--every", type=float, default=10.0, help="processor seconds between kills")
    parser.add_argument("--at-once", type=int, default=12, help="requests in the engine at most")
    parser.add_argument("--at-most", type=float, default=1.05)
    parser.add_argument("--model", type=Path, help="a folder in place of SmolLM2's first layer")
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.answer is not None:
        asyncio.run(answer(Batch(given.answer), given.model, given.every, given.at_once))
        return 0
    with tempfile.TemporaryDirectory(prefix="flowmesh-kills-") as name:
        batch = Batch(Path(name, "batch"))
        batch.folder.mkdir()
        model = given.model or shallow_model(Path(name))
        rows = requests(given.requests, given.max_tokens)
        batch.publish(batch.folder / "rows.json", json.dumps(rows))
        kills = run(batch, model, given.every, given.at_once)
        return report(batch, kills, given.every, given.at_most)


if __name__ == "__main__":
    sys.exit(main())
