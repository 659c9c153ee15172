"""How large the batches of a component may be."""

from flowmesh_core.serving.profile import BatchProfile


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
