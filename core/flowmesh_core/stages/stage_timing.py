"""What a call of a stage may take: the planner's word to the hosts that form batches.

Made with each plan from the measured times of all components; it travels with the replica to the
worker's hub, and with each call to its host.
"""

import msgspec


class StageTiming(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The part of a latency target that a stage has, and what comes after it.

    Attributes:
        target_s: its component's part of the latency target, for one visit; 0 for none.
        visits: how often the slowest way from the stage to the reply calls its component, the stage
            included.
        rest_s: the least time of the calls of other components on that way.
    """

    target_s: float = 0.0
    visits: int = 1
    rest_s: float = 0.0


UNTIMED = StageTiming()
"""Of a stage without a latency target, or before its plan is known."""
STEADY = 0.1
"""Timings that differ by less than this share are left as they are."""


def is_steady(before: StageTiming, now: StageTiming) -> bool:
    """Returns whether two timings of a stage are so near that hosts need not learn of it."""
    pairs = (before.target_s, now.target_s), (before.rest_s, now.rest_s)
    return before.visits == now.visits and all(
        abs(new - old) <= STEADY * max(old, new) for old, new in pairs
    )
