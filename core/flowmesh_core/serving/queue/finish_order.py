"""Which of several instances on one device runs its batch next.

Earliest finish time first: each instance is given the share of the device that it was promised, the
finish of its batch under these shares is predicted, and the whole device goes to the batch that
would finish first. What runs is not preempted, so a batch is at most one other batch later than it
would be with real shares. Source: NeuStream (see ``neustream``), which preempts.
"""

from collections.abc import Sequence

import msgspec

AGED = 5.0
"""A batch that has waited so many times its latency target counts as aged."""


class ReadyBatch(msgspec.Struct, frozen=True, gc=False):
    """A batch that could run now.

    Attributes:
        instance: the engine instance that it is for.
        arrived_s: when the batch could first have run.
        seconds: how long it takes with the whole device.
        share: of the device that the instance was promised, above 0 and at most 1.
        previous_finish_s: the predicted finish of the instance's batch before it; 0 without one.
        target_s: the instance's part of the latency target; 0 without one.
        demoted: whether all its calls are late already and are served all the same.
    """

    instance: str
    arrived_s: float
    seconds: float
    share: float = 1.0
    previous_finish_s: float = 0.0
    target_s: float = 0.0
    demoted: bool = False

    @property
    def finish_s(self) -> float:
        """When it would finish with its share of the device alone."""
        return max(self.previous_finish_s, self.arrived_s) + self.seconds / self.share

    def is_background(self, now_s: float) -> bool:
        """Whether it is demoted, or waits for so long that it has to be served at some time."""
        return self.demoted or (self.target_s > 0 and now_s - self.arrived_s > AGED * self.target_s)


def next_batch(
    ready: Sequence[ReadyBatch], now_s: float, *, background_due: bool = False
) -> ReadyBatch | None:
    """Chooses the batch that the device runs next; None where none is ready.

    Args:
        ready: at most one batch an instance.
        now_s: the time.
        background_due: whether demoted and aged batches have had less than their least share of the
            device (5 %) lately. Then the oldest of them goes first.
    """
    background = [batch for batch in ready if batch.is_background(now_s)]
    if background_due and background:
        return min(background, key=lambda batch: (batch.arrived_s, batch.instance))
    punctual = [batch for batch in ready if not batch.demoted] or ready
    return min(punctual, key=lambda batch: (batch.finish_s, batch.instance), default=None)
