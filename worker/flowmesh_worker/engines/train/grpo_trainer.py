"""TRL's GRPOTrainer with reproducible logs and a known point to interrupt it.

Imported only by hosts that train: torch and TRL come with it.
"""

import math

from trl import GRPOTrainer

_TIME = "step_time"


class DeterministicGRPOTrainer(GRPOTrainer):  # type: ignore[misc]  # no types there
    """GRPO with reproducible logs, which knows after which steps it can be interrupted."""

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Logs the metrics that are finite and do not depend on time.

        If no completion has a value for a metric, TRL would log None.
        """
        figures = self._metrics["train" if self.model.training else "eval"]
        figures.pop(_TIME, None)
        for name, values in list(figures.items()):
            figures[name] = [v for v in values if math.isfinite(v)]
            if not figures[name]:
                del figures[name]
        super().log(logs, start_time)

    @property
    def can_be_left(self) -> bool:
        """Whether the next step generates new completions; see ``CheckpointCallback``.

        A checkpoint contains no completions. If it were written between several steps on the same
        completions, they would be generated again by a policy that has changed.
        """
        every = self.args.steps_per_generation * self.num_iterations
        return bool(self._step % every == 0)
