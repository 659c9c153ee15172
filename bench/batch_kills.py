"""Measures what a batch pays for killed engines: tokens generated, over those of its answers.

``make bench-batch-kills`` answers requests with ``llm.openai`` in a process of its own, kills it
with its engine core after each ``--every`` seconds of work, and starts it again from what was
published and from the newest journals, as a worker does. Half of the requests are greedy, half are
sampled. Tokens are counted where the engine core's outputs arrive, in a mapped file that outlives
the process: those that it generated, with a whole step for each kill, which interrupts one, and
those of the prompts that it computed, which contain the tokens that a continued request begins at.
It fails where a row is missing, where nothing was killed, or where the generated tokens exceed
``--at-most`` times those of the answers; the ratio of computed prompts is printed.

The model is the first layer of SmolLM2, and time is that of the engine's processes on the
processor, since others may keep it busy. With less than a minute between kills, tokens are written
as much more often; steps of the engine are not shorter then, so what they cost weighs more.
``--every 0`` kills nothing, and prints tokens a second; ``--plain`` writes no journals then.
"""

import argparse
import asyncio
import contextlib
import functools
import json
import mmap
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
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
_COUNTERS = struct.Struct("qqq")
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
    """Tokens of all processes, and those of the last step, in a mapped file."""

    def __init__(self, path: Path) -> None:
        """Opens the file, or creates it."""
        if not path.exists():
            path.write_bytes(_COUNTERS.pack(0, 0, 0))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _COUNTERS.size)

    @property
    def tokens(self) -> tuple[int, int, int]:
        """Prompt tokens, generated ones, and those of the last step."""
        prompt, generated, step = _COUNTERS.unpack(self._map[:])
        return prompt, generated, step

    def add(self, prompt: int, generated: int) -> None:
        """Adds the tokens of a step."""
        before = self.tokens
        self._map[:] = _COUNTERS.pack(before[0] + prompt, before[1] + generated, generated)

    def add_step(self) -> None:
        """Adds a step as large as the last, for the one that a kill interrupts."""
        self.add(0, self.tokens[2])


class ProcessorClock:
    """The processor time of this process and of all that it started; read now and then."""

    _READ_EVERY_S = 0.02

    def __init__(self) -> None:
        self._read_s = self._time_s = 0.0

    def __call__(self) -> float:
        """Returns seconds."""
        now_s = time.monotonic()
        if now_s - self._read_s >= self._READ_EVERY_S:
            self._read_s, self._time_s = now_s, processor_s(os.getpid())
        return self._time_s

    async def pause(self, for_s: float) -> None:
        """Waits until so much processor time was used."""
        until_s = self() + for_s
        while self() < until_s:  # noqa: ASYNC110 - time of the processor, which sets no event
            await asyncio.sleep(self._READ_EVERY_S)


@dataclass(frozen=True, slots=True)
class Batch:
    """The folder of a batch: its requests, journals and answers."""

    folder: Path

    def answers(self, number: int) -> Path:
        """Returns the published answers of an action."""
        return self.folder / f"answers-{number}.json"

    def journal(self, number: int) -> Path:
        """Returns the file that names the newest journal of an action."""
        return self.folder / f"journal-{number}"

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
                "temperature": 0.7 * (number % 2),
            },
        }
        for number, text in enumerate(prompts(count))
    ]


def count_tokens(engine: Any, counter: TokenCounter) -> None:
    """Counts the tokens that the core of a running ``AsyncLLM`` computes."""
    prompts = dict[str, int]()
    process, send = engine.output_processor.process_outputs, engine.engine_core.add_request_async

    async def sent(request: Any) -> None:
        prompts[request.request_id] = len(request.prompt_token_ids)
        await send(request)

    def processed(outputs: Any, *more: Any, **named: Any) -> Any:
        begun = sum(prompts.pop(output.request_id, 0) for output in outputs)
        counter.add(begun, sum(len(output.new_token_ids) for output in outputs))
        return process(outputs, *more, **named)

    engine.engine_core.add_request_async = sent
    engine.output_processor.process_outputs = processed


async def answer(batch: Batch, model: Path, every_s: float, *, plain: bool) -> None:
    """Answers what has no answer yet; the process that is killed."""
    if every_s:
        answer_checkpoints.TOKENS_EVERY_S *= every_s / _MINUTE_S
        answer_checkpoints.STORE_EVERY_S *= every_s / _MINUTE_S
        clock = ProcessorClock()
        openai.AnswerCheckpoints = functools.partial(  # type: ignore[assignment, misc]
            answer_checkpoints.AnswerCheckpoints, clock=clock, pause=clock.pause
        )
    elif plain:
        openai.AnswerCheckpoints = NoCheckpoints  # type: ignore[assignment, misc]
    engine = LlmOpenAi()
    scratch = Path(tempfile.mkdtemp(dir=batch.folder))
    signature = {"dtype": "float32", "batchInvariant": True}
    await engine.load(
        {"model": TreeInput(_NO_DIGEST, model)}, HostSettings((), 4096, 2, signature, scratch)
    )
    count_tokens(engine._backend.engine, TokenCounter(batch.folder / "tokens"))
    batch.publish(batch.folder / f"loaded-{os.getpid()}", "")
    rows = batch.rows
    parts = [rows[i : i + ROWS_OF_ACTION] for i in range(0, len(rows), ROWS_OF_ACTION)]
    left = [n for n in range(len(parts)) if not batch.answers(n).exists()]
    began_s = processor_s(os.getpid())
    await asyncio.gather(*(_action(engine, batch, n, parts[n], scratch) for n in left))
    batch.publish(batch.folder / "took", str(processor_s(os.getpid()) - began_s))
    await engine.close()


class NoCheckpoints(answer_checkpoints.AnswerCheckpoints):
    """Saves nothing."""

    async def answered(self, key: str, response: Any) -> None:
        """Does nothing."""

    async def watch(self, unfinished: Any) -> None:
        """Does nothing."""


async def _action(
    engine: LlmOpenAi, batch: Batch, number: int, rows: list[dict[str, Any]], scratch: Path
) -> None:
    manifest, blobs = as_single_chunk(rows)
    newest = batch.journal(number)
    work = Work(
        action_id=str(number),
        attempt_id=f"{os.getpid()}-{number}",
        params={},
        fields={},
        inputs={"rows": DatasetInput(manifest, tuple(blobs[c.blob] for c in manifest.chunks))},
        out_dir=scratch / str(number),
        priority=-number,
        resume=TreeInput(_NO_DIGEST, Path(newest.read_text())) if newest.exists() else None,
        journal=lambda path, _: batch.publish(newest, str(path)),
    )
    work.out_dir.mkdir()
    result = await engine.run(work, lambda *_: None)
    output = result.outputs["rows"]
    assert isinstance(output, Rows)
    batch.publish(batch.answers(number), json.dumps([r["response"] for r in output.rows]))


def run(batch: Batch, model: Path, every_s: float, *, plain: bool) -> int:
    """Starts the process again until it ends by itself; returns how often it was killed."""
    kills = 0
    while True:
        command = [sys.executable, __file__, "--answer", str(batch.folder)]
        command += ["--model", str(model), "--every", str(every_s)]
        command += ["--plain"] if plain else []
        process = subprocess.Popen(command, start_new_session=True)
        loaded = batch.folder / f"loaded-{process.pid}"
        while not loaded.exists() and process.poll() is None:
            time.sleep(0.1)
        began_s = processor_s(process.pid)
        while process.poll() is None:
            if every_s and processor_s(process.pid) - began_s >= every_s:
                break
            time.sleep(0.05)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            TokenCounter(batch.folder / "tokens").add_step()
            kills += 1
        elif process.returncode:
            sys.exit(f"the process ended with code {process.returncode}")
        else:
            return kills


def report(batch: Batch, kills: int, every_s: float, at_most: float) -> int:
    """Prints the figures; returns 1 where a row is missing, too much was paid, or no kill fell."""
    rows = batch.rows
    found = [
        response
        for number in range(-(-len(rows) // ROWS_OF_ACTION))
        for response in json.loads(batch.answers(number).read_text())
    ]
    usages = [r["body"]["usage"] for r in found if r["status_code"] == 200]
    prompts = sum(u["prompt_tokens"] for u in usages)
    completions = sum(u["completion_tokens"] for u in usages)
    computed, generated, _ = TokenCounter(batch.folder / "tokens").tokens
    figures = {
        "rows": len(rows),
        "answered": len(usages),
        "kills": kills,
        "every_s": every_s,
        "tokens_of_answers": completions,
        "generated_tokens": generated,
        "ratio": round(generated / completions, 4),
        "tokens_of_prompts": prompts,
        "computed_prompt_tokens": computed,
        "prompt_ratio": round(computed / prompts, 4),
    }
    if not every_s:
        figures["tokens_a_processor_s"] = round(
            generated / float((batch.folder / "took").read_text())
        )
    sys.stdout.write(json.dumps(figures) + "\n")
    was_killed = bool(kills) or not every_s
    return int(len(usages) != len(rows) or figures["ratio"] > at_most or not was_killed)


def main() -> int:
    """Runs the benchmark, or the process that it kills."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1600)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--every", type=float, default=60.0, help="processor seconds between kills")
    parser.add_argument("--plain", action="store_true", help="write no journals, if none is killed")
    parser.add_argument("--at-most", type=float, default=1.05)
    parser.add_argument("--model", type=Path, help="a folder in place of SmolLM2's first layer")
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.answer is not None:
        asyncio.run(answer(Batch(given.answer), given.model, given.every, plain=given.plain))
        return 0
    with tempfile.TemporaryDirectory(prefix="flowmesh-kills-") as name:
        batch = Batch(Path(name, "batch"))
        batch.folder.mkdir()
        model = given.model or shallow_model(Path(name))
        rows = requests(given.requests, given.max_tokens)
        batch.publish(batch.folder / "rows.json", json.dumps(rows))
        kills = run(batch, model, given.every, plain=given.plain)
        return report(batch, kills, given.every, given.at_most)


if __name__ == "__main__":
    sys.exit(main())
