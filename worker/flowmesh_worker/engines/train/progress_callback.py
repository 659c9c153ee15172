"""Reports the progress of a training, logs its loss, and stops it if it is cancelled.

Imported only by hosts that train: transformers comes with it.
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
    """Reports progress, writes the loss to the host's log, and ends a cancelled action."""

    def __init__(self, told: Callable[[float, float], None], cancelled: Callable[[], bool]) -> None:
        """Creates the callback.

        Args:
            told: called with the steps done and the total.
            cancelled: returns whether the action was cancelled.
        """
        self._report = told
        self._cancelled = cancelled
        self._next_s = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Reports the first step, which is above 0 after a checkpoint."""
        self._report(state.global_step, state.max_steps)

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Checks for cancellation between the batches of one step."""
        self._raise_if_cancelled()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Checks for cancellation between the batches of an evaluation."""
        self._raise_if_cancelled()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Reports a step of the optimizer; the last one is always logged."""
        self._raise_if_cancelled()
        self._report(state.global_step, state.max_steps)
        if state.global_step >= state.max_steps:
            control.should_log = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Logs the metrics, at most once a second, and ends a training that has diverged.

        Raises:
            AttemptError: bad input; a metric is not finite.
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

    def _raise_if_cancelled(self) -> None:
        if self._cancelled():
            raise TrainingCancelledError
