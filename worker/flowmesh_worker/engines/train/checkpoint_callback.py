"""Decides when a training writes a checkpoint, and when it stops because its worker leaves.

Imported only by hosts that train: transformers comes with it.
"""

import sys
from typing import Any

from transformers import TrainerCallback

from flowmesh_worker.engine_api import StoppedAtCheckpointError, Work
from flowmesh_worker.engines.train.checkpoints import CheckpointRestore, usable, write_checkpoint


class CheckpointCallback(TrainerCallback):  # type: ignore[misc]  # no types there
    """Writes checkpoints every ``save_steps`` steps, and one more when the worker leaves."""

    def __init__(self, work: Work, engine: str) -> None:
        """Reads ``save_steps`` of the action; ``engine`` is written into checkpoints."""
        self._work = work
        self._engine = engine
        self._every = int(work.params["save_steps"])
        self._due = False
        self._trainer: Any = None

    def begin(self, trainer: Any) -> str | None:
        """Replaces the trainer's own checkpoints.

        Args:
            trainer: not started yet, with this object among its callbacks.

        Returns:
            The folder to resume from; None to begin at the start.
        """
        self._trainer = trainer
        trainer._save_checkpoint = self._save
        resume = self._work.resume
        if resume is None or not usable(resume.path, self._engine):
            return None
        CheckpointRestore(trainer, resume.path)
        return str(resume.path)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Logs the step at which the training resumes."""
        if state.global_step:
            sys.stdout.write(f"goes on after step {state.global_step}/{state.max_steps}\n")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Requests a checkpoint if one is due, except after the last step.

        A trainer that cannot be interrupted after every step has an attribute ``can_be_left``; the
        checkpoint then waits for the first step after which it is true.
        """
        if state.global_step >= state.max_steps:
            return
        self._due |= bool(self._every and state.global_step % self._every == 0)
        if (self._due or self._leaves()) and getattr(self._trainer, "can_be_left", True):
            self._due = False
            control.should_save = True

    def _save(self, *_: Any, **__: Any) -> None:
        """Writes a checkpoint and passes it to the host.

        Raises:
            StoppedAtCheckpointError: the worker leaves; another worker resumes from here.
        """
        step = int(self._trainer.state.global_step)
        folder = self._work.out_dir / f"checkpoint-{step}"
        self._work.checkpoint(write_checkpoint(self._trainer, self._engine, folder), step)
        if self._leaves():
            raise StoppedAtCheckpointError

    def _leaves(self) -> bool:
        return self._work.stopping.is_set() and not self._work.cancelled.is_set()
