"""The host's end of checkpoints: takes directories from engines, whatever thread they run in."""

import itertools
import shutil
import threading
from pathlib import Path

from flowmesh_worker.host.thread_safe_sender import ThreadSafeSender
from flowmesh_worker.ipc.frames import Checkpointed

_numbers = itertools.count(1)


class AttemptSignals:
    """What an attempt is told while it runs; the engine may look at it from any thread."""

    __slots__ = ("cancelled", "stopping")

    def __init__(self) -> None:
        """Starts unset."""
        self.stopping = threading.Event()
        self.cancelled = threading.Event()

    def cancel(self) -> None:
        """Nobody wants the attempt any more."""
        self.cancelled.set()
        self.stopping.set()


class CheckpointTaker:
    """Takes one attempt's checkpoints: ``Work.checkpoint``."""

    __slots__ = ("_attempt_id", "_scratch", "_signals", "_tell")

    def __init__(
        self, attempt_id: str, scratch: Path, tell: ThreadSafeSender, signals: AttemptSignals
    ) -> None:
        """Takes where directories may come from and whom to tell."""
        self._attempt_id = attempt_id
        self._scratch = scratch
        self._tell = tell
        self._signals = signals

    def __call__(self, path: Path, done: float) -> None:
        """As :class:`flowmesh_worker.engine_api.TakesCheckpoint`."""
        if not path.is_dir() or not path.resolve().is_relative_to(self._scratch.resolve()):
            raise ValueError(
                f"{path} is no directory below out_dir or scratch; a checkpoint must be one"
            )
        if self._signals.cancelled.is_set():
            shutil.rmtree(path, ignore_errors=True)
            return
        taken = self._scratch / "checkpoints" / str(next(_numbers))
        taken.parent.mkdir(exist_ok=True)
        # A rename: the engine may write the next one to the same place at once.
        path.rename(taken)
        self._tell(Checkpointed(self._attempt_id, str(taken), float(done)))
