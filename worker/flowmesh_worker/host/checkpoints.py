"""Checkpoints in the engine host: moves an engine's directory away and reports it to the agent.

A journal is reported, too, and stays where it is. Called by engines from any thread. Storing the
checkpoint is the agent's work.
"""

import itertools
import shutil
import threading
from pathlib import Path

from flowmesh_worker.host.thread_safe_sender import ThreadSafeSender
from flowmesh_worker.ipc.frames import Checkpointed

_numbers = itertools.count(1)


class AttemptSignals:
    """The stop and cancel events of one attempt; engines may read them from any thread."""

    __slots__ = ("cancelled", "stopping")

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.cancelled = threading.Event()

    def cancel(self) -> None:
        """Marks the attempt as cancelled and asks it to stop."""
        self.cancelled.set()
        self.stopping.set()


class CheckpointTaker:
    """The ``Work.checkpoint`` and ``Work.journal`` of one attempt."""

    __slots__ = ("_attempt_id", "_scratch", "_send", "_signals")

    def __init__(
        self, attempt_id: str, scratch: Path, tell: ThreadSafeSender, signals: AttemptSignals
    ) -> None:
        """Accepts directories below ``scratch`` only."""
        self._attempt_id = attempt_id
        self._scratch = scratch
        self._send = tell
        self._signals = signals

    def __call__(self, path: Path, done: float) -> None:
        """As :class:`flowmesh_worker.engine_api.CheckpointSink`."""
        self._require(path)
        if self._signals.cancelled.is_set():
            shutil.rmtree(path, ignore_errors=True)
            return
        moved = self._scratch / "checkpoints" / str(next(_numbers))
        moved.parent.mkdir(exist_ok=True)
        # A rename, so that the engine may write its next checkpoint to the same path at once.
        path.rename(moved)
        self._send(Checkpointed(self._attempt_id, str(moved), float(done)))

    def journal(self, path: Path, done: float) -> None:
        """As ``Work.journal``."""
        self._require(path)
        if not self._signals.cancelled.is_set():
            self._send(Checkpointed(self._attempt_id, str(path), float(done), is_journal=True))

    def _require(self, path: Path) -> None:
        if not path.is_dir() or not path.resolve().is_relative_to(self._scratch.resolve()):
            raise ValueError(
                f"{path} is not a checkpoint: expected a directory below out_dir or scratch"
            )
