"""Checkpoints of ``llm.openai``: the responses of an action so far.

An action of some dozen long requests may run for minutes, and its host may end before: what was
answered is not paid for twice.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flowmesh_worker.engine_api import Work

EVERY_S = 5.0
_FILE = "answers.json"


class AnswerCheckpoints:
    """Saves and restores the responses of one action."""

    def __init__(self, work: Work, clock: Callable[[], float] = time.monotonic) -> None:
        """Begins now.

        Args:
            work: the action.
            clock: seconds that only grow.
        """
        self._work = work
        self._clock = clock
        self._saved_s = clock()
        self._number = 0

    def restored(self) -> dict[str, Any]:
        """Returns the responses of the newest checkpoint by request; empty without one."""
        if self._work.resume is None:
            return {}
        try:
            found = json.loads(Path(self._work.resume.path, _FILE).read_text())
        except (OSError, ValueError):  # of another version
            return {}
        return found if isinstance(found, dict) else {}

    async def save(self, answers: Mapping[str, Any]) -> None:
        """Saves all responses so far, unless it did so a moment ago."""
        now_s = self._clock()
        if now_s - self._saved_s < EVERY_S:
            return
        self._saved_s = now_s
        self._number += 1
        folder = self._work.out_dir / f"checkpoint-{self._number}"
        await asyncio.to_thread(_write, folder, dict(answers))
        self._work.checkpoint(folder, len(answers))


def _write(folder: Path, answers: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True)
    (folder / _FILE).write_text(json.dumps(answers))
