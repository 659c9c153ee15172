"""TRL's GRPOTrainer, as far as a second run must give the same and an interrupted one go on.

Imported only once a host trains: torch and TRL come with it.
"""

import math

from trl import GRPOTrainer

_TIME = "step_time"


class DeterministicGRPOTrainer(GRPOTrainer):  # type: ignore[misc]  # no types there
    """GRPO whose figures are numbers or not there, and that knows where it can be interrupted."""

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Logs what is a number and does not depend on time.

        No completion may have had a value for a figure; TRL would log None for it.
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
        """Whether the next step draws completions of its own; see ``CheckpointCallback``.

        A checkpoint holds no completions: one taken in the middle of several steps on the same
        completions would have to draw them again, from a policy that is another by then.
        """
        every = self.args.steps_per_generation * self.num_iterations
        return bool(self._step % every == 0)
