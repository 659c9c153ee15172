"""The batching of NeuStream, for comparison: a fixed batch limit, and calls dropped by budget.

Two forms are known. The paper's Algorithm 1 drops a call that has used up the parts of its latency
target; the published artifact drops one whose remaining work no longer fits before its deadline.
Source: Yuan et al., "NeuStream: Bridging Deep Learning Serving and Stream Processing", Algorithm 1,
and its artifact (Fjallraven-hc/NeuStream-AE).
"""

from collections.abc import Sequence

from flowmesh_core.serving.profile import BatchProfile
from flowmesh_core.serving.queue.batching import FormedBatch
from flowmesh_core.serving.queue.waiting_call import WaitingCall


def form_batch_by_remaining_work(
    queue: Sequence[WaitingCall], profile: BatchProfile, limit: int, margin_s: float, now_s: float
) -> FormedBatch:
    """Chooses as the artifact does: calls that were never passed over first, in order of arrival.

    Args:
        queue: the calls that wait, in order of arrival.
        profile: of the component; a call is late if its visits, each alone, no longer fit.
        limit: the largest batch within the component's target; see
            :meth:`BatchProfile.largest_within`.
        margin_s: added to the work that remains.
        now_s: the time.
    """
    alone_s = profile.at(1)
    due = [call for call in queue if call.seconds_a_visit(now_s, margin_s) >= alone_s]
    late = tuple(call for call in queue if call.seconds_a_visit(now_s, margin_s) < alone_s)
    due.sort(key=lambda call: call.passed_over)
    return FormedBatch(tuple(due[:limit]), late)


def form_batch_by_budget(queue: Sequence[WaitingCall], limit: int) -> FormedBatch:
    """Chooses as Algorithm 1 does: in order of arrival, without the calls over their budget.

    Args:
        queue: the calls that wait, in order of arrival, with their budgets. A budget counts the
            target of the present visit too; read literally, the paper's pseudocode would drop
            every call that waited at all at its first component.
        limit: the largest batch within the component's target; see
            :meth:`BatchProfile.largest_within`.
    """
    kept = [call for call in queue if call.budget_s >= 0]
    late = tuple(call for call in queue if call.budget_s < 0)
    return FormedBatch(tuple(kept[:limit]), late)
