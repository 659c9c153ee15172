"""What a training tells while it runs, and how it is stopped.

Imported only once a host trains: transformers comes with it.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.train.cancelled import TrainingCancelledError
from flowmesh_worker.engines.train.curve import diverged

_LINE_EVERY_S = 1.0
_SHOWN = ("loss", "reward", "kl", "grad_norm", "learning_rate", "eval_loss")


class TrainingProgressCallback(TrainerCallback):  # type: ignore[misc]  # no types there
    """Progress, the loss on the host's log, and the end of a cancelled action."""

    def __init__(self, told: Callable[[float, float], None], cancelled: Callable[[], bool]) -> None:
        """Takes who listens.

        Args:
            told: called with the steps done and all of them.
            cancelled: whether nobody wants the action any more.
        """
        self._told = told
        self._cancelled = cancelled
        self._next_s = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Tells where it begins: above 0 where it goes on from a checkpoint."""
        self._told(state.global_step, state.max_steps)

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Between the batches of one step."""
        self._look()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Between batches of an evaluation."""
        self._look()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After a step of the optimizer; the last one is always logged."""
        self._look()
        self._told(state.global_step, state.max_steps)
        if state.global_step >= state.max_steps:
            control.should_log = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Says how it goes, at most once a second, and ends what cannot become better.

        Raises:
            AttemptError: bad input; the loss is no number any more.
        """
        entry = dict(logs or {})
        lost = diverged(entry)
        if lost:
            raise bad_input(
                f"training diverged: {lost} is {entry[lost]} at step {state.global_step}",
                "lower learning_rate, set warmup_steps or max_grad_norm, or use dtype: float32",
            )
        now, last = time.monotonic(), state.global_step >= state.max_steps
        shown = [f"{k} {entry[k]:.4g}" for k in _SHOWN if k in entry]
        if shown and (last or now >= self._next_s or "eval_loss" in entry):
            self._next_s = now + _LINE_EVERY_S
            sys.stdout.write(f"step {state.global_step}/{state.max_steps}: {', '.join(shown)}\n")

    def _look(self) -> None:
        if self._cancelled():
            raise TrainingCancelledError
