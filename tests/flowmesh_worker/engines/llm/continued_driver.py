"""Answers rows undisturbed, and again with engines that are killed in the middle.

Run as a program, as driver.py is, with a job on standard input: the model's folder, rows, and how
many tokens the journal of each killed engine has at least. The program starts itself for each
engine, kills it, and gives its journal to the next. The answer has the responses of both runs, and
of each engine the tokens that it generated.
"""

import asyncio
import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from flowmesh_store.datasets.chunks import as_single_chunk
from flowmesh_worker.engine_api import DatasetInput, HostSettings, Rows, TreeInput, Work
from flowmesh_worker.engines.llm import answer_checkpoints, openai
from flowmesh_worker.engines.llm.answer_checkpoints import AnswerCheckpoints

SIGNATURE = {"dtype": "float32", "batchInvariant": True}


def _count(engine: Any, folder: Path) -> None:
    """Counts the tokens that the engine core generates in a file."""
    processor = engine._backend.engine.output_processor
    process = processor.process_outputs

    def counted(outputs: Any, *more: Any, **named: Any) -> Any:
        with open(folder / "generated", "a") as file:
            file.write("".join(f"{len(o.new_token_ids)}\n" for o in outputs))
        return process(outputs, *more, **named)

    processor.process_outputs = counted


async def answer(job: dict[str, Any], folder: Path) -> None:
    """Answers all rows, or ends when the journal has as many tokens as it is to have."""
    openai.AnswerCheckpoints = functools.partial(  # type: ignore[assignment, misc]
        AnswerCheckpoints, pause=lambda _: asyncio.sleep(0.005)
    )
    engine = openai.LlmOpenAi()
    settings = HostSettings((), 4096, 2, SIGNATURE, folder)
    await engine.load({"model": TreeInput("0" * 64, Path(job["model"]))}, settings)
    _count(engine, folder)
    manifest, blobs = as_single_chunk(job["rows"])

    def journal(path: Path, done: float) -> None:
        found = answer_checkpoints._read(
            path / answer_checkpoints.JOURNAL, engine._continuation.engine
        )
        if sum(map(len, found.tokens.values())) >= job["tokens"]:
            os.killpg(os.getpid(), signal.SIGKILL)

    work = Work(
        action_id="a",
        attempt_id=f"a/{os.getpid()}",
        params={},
        fields={},
        inputs={"rows": DatasetInput(manifest, tuple(blobs[c.blob] for c in manifest.chunks))},
        out_dir=folder / "out",
        resume=TreeInput("0" * 64, Path(job["resume"])) if job["resume"] else None,
        journal=journal if job["tokens"] else lambda *_: None,
    )
    work.out_dir.mkdir()
    result = await engine.run(work, lambda *_: None)
    output = result.outputs["rows"]
    assert isinstance(output, Rows)
    responses = [row["response"] for row in output.rows]
    (folder / "answers.json").write_text(json.dumps(responses))
    await engine.close()


def start(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Runs one engine; returns its answers, if it lived, and what it generated."""
    folder.mkdir()
    command = [sys.executable, __file__, "--answer", str(folder)]
    done = subprocess.run(
        command, input=json.dumps(job), text=True, start_new_session=True, check=False
    )
    killed = done.returncode == -signal.SIGKILL
    assert killed or done.returncode == 0, done.returncode
    answers = folder / "answers.json"
    return {
        "killed": killed,
        "answers": json.loads(answers.read_text()) if answers.exists() else None,
        "generated": sum(map(int, (folder / "generated").read_text().split())),
        "journal": (folder / "out" / "journal" / answer_checkpoints.JOURNAL).read_text(),
    }


def main(job: dict[str, Any]) -> None:
    folder = Path(job["folder"])
    common = {"model": job["model"], "rows": job["rows"]}
    whole = start({**common, "tokens": 0, "resume": ""}, folder / "whole")
    parts, resume = [], ""
    for number, tokens in enumerate([*job["kills"], 0]):
        own = folder / str(number)
        parts.append(start({**common, "tokens": tokens, "resume": resume}, own))
        resume = str(own / "out" / "journal")
    Path(job["answer"]).write_text(json.dumps({"whole": whole, "parts": parts}))


if __name__ == "__main__":
    given = json.load(sys.stdin)
    if sys.argv[1:2] == ["--answer"]:
        asyncio.run(answer(given, Path(sys.argv[2])))
    else:
        main(given)
