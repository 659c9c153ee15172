"""The engine ``test.steps``: counts steps with checkpoints, in a thread, as a trainer does."""

import asyncio
import json
import shutil
from pathlib import Path

from flowmesh_core.identity import digest_value
from flowmesh_worker.engine_api import (
    Metrics,
    Progress,
    Result,
    StoppedAtCheckpointError,
    TreeInput,
    Usage,
    Work,
)
from flowmesh_worker.engines.engine_base import EngineBase

_STATE = "state.json"


class Steps(EngineBase):
    """The engine ``test.steps``; each step's digest depends on the one before."""

    capacity = 256

    async def run(self, work: Work, progress: Progress) -> Result:
        """Counts from the checkpoint, or from 0, to ``steps``."""
        return await asyncio.to_thread(_count, work, progress)


def _count(work: Work, progress: Progress) -> Result:
    steps, every = int(work.params["steps"]), int(work.params["checkpointEvery"])
    seconds = float(work.params["stepSeconds"])
    begun, chain = _begin(work.resume, steps)
    for done in range(begun, steps):
        progress(done, steps, "steps")
        if work.stopping.wait(seconds):
            if every and not work.cancelled.is_set():
                _checkpoint(work, done, chain)
            raise StoppedAtCheckpointError
        chain = digest_value("test.steps", [chain, work.params.get("value"), done])
        if every and (done + 1) % every == 0 and done + 1 < steps:
            _checkpoint(work, done + 1, chain)
    metrics = {"value": work.params.get("value"), "chain": chain}
    return Result({"metrics": Metrics(metrics)}, Usage(units=steps - begun))


def _begin(resume: TreeInput | None, steps: int) -> tuple[int, str]:
    """Returns the step and digest of the checkpoint; the start if it cannot be used."""
    if resume is None:
        return 0, ""
    try:
        state = json.loads((resume.path / _STATE).read_text())
        done, chain = int(state["done"]), str(state["chain"])
    except (OSError, ValueError, KeyError):
        return 0, ""
    return (done, chain) if 0 <= done <= steps else (0, "")


def _checkpoint(work: Work, done: int, chain: str) -> None:
    path = Path(work.out_dir) / "checkpoint"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    (path / _STATE).write_text(json.dumps({"done": done, "chain": chain}))
    work.checkpoint(path, done)
