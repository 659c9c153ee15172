"""Forms the next batch of an idle instance.

A batch is formed the moment an instance is idle; it never waits to fill. Calls are taken by
deadline, as many as can all be in time *at that batch size*, since a larger batch makes each of its
members slower.
"""

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from flowmesh_core.serving.profile import BatchProfile
from flowmesh_core.serving.queue.waiting_call import WaitingCall


class FormedBatch(msgspec.Struct, frozen=True):
    """The decision about a queue.

    Attributes:
        calls: the batch, by deadline; empty where no call can be in time.
        late: the calls that cannot be in time even alone.
    """

    calls: tuple[WaitingCall, ...]
    late: tuple[WaitingCall, ...]


def form_batch(
    queue: Sequence[WaitingCall], profile: BatchProfile, cap: int, margin_s: float, now_s: float
) -> FormedBatch:
    """Chooses the next batch.

    Args:
        queue: the calls that wait, in any order.
        profile: of the component on this device.
        cap: the largest batch, at least 1.
        margin_s: how far a prediction may be off.
        now_s: the time.

    Returns:
        The largest batch whose calls can all be in time, and the calls that are late. All calls
        that are in neither wait on.
    """
    alone_s = profile.at(1)
    if len(queue) == 1:  # the most frequent case
        is_late = queue[0].seconds_a_visit(now_s, margin_s) < alone_s
        return FormedBatch((), tuple(queue)) if is_late else FormedBatch(tuple(queue), ())
    allowed_s = {call.id: call.seconds_a_visit(now_s, margin_s) for call in queue}
    feasible = [call for call in queue if allowed_s[call.id] >= alone_s]
    late = tuple(call for call in queue if allowed_s[call.id] < alone_s)
    if not feasible:
        return FormedBatch((), late)
    size = _largest_feasible(sorted(allowed_s[call.id] for call in feasible), profile, cap)
    batch_s = profile.at(size)
    members = [call for call in feasible if allowed_s[call.id] >= batch_s]
    members.sort(key=lambda call: (call.deadline_s, call.id))
    return FormedBatch(tuple(members[:size]), late)


def _largest_feasible(allowed_s: Sequence[float], profile: BatchProfile, cap: int) -> int:
    """Returns the largest size that enough calls allow; ``allowed_s`` ascends and allows 1."""
    count = len(allowed_s)
    for size in range(min(cap, count), 1, -1):
        if count - bisect_left(allowed_s, profile.at(size)) >= size:
            return size
    return 1
