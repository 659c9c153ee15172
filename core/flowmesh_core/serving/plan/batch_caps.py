"""How many calls an instance takes at once."""

from flowmesh_core.serving.profile import BatchProfile

HEADROOM = 0.9
"""Of the target of a token: the rest is for what a step's prediction leaves out."""


def batch_cap(profile: BatchProfile, target_s: float, memory_cap: int) -> int:
    """Returns the largest batch of a component that we batch ourselves.

    Args:
        profile: of the component on this device; every measured size is looked at, since a larger
            batch may be faster than a smaller one.
        target_s: the component's part of the latency target, for one visit.
        memory_cap: the largest batch that fits in memory.

    Returns:
        At least 1. The cap is not lowered to leave room for queueing: that costs capacity and
        raises the number of late replies; the room is left in planning.
    """
    return profile.largest_within(target_s, min(memory_cap, profile.knee()))


def sequence_cap(step_base_s: float, step_per_sequence_s: float, token_target_s: float) -> int:
    """Returns how many sequences an engine with continuous batching may decode at once.

    Args:
        step_base_s: the part of a decoding step that does not depend on the number of sequences.
        step_per_sequence_s: what each of them adds, above 0.
        token_target_s: the latency target of one token.
    """
    room_s = HEADROOM * token_target_s - step_base_s
    return max(1, int(room_s / step_per_sequence_s))
