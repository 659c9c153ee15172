"""The longest path through a plan, in predicted seconds; the scheduler puts steps on it first."""

from collections.abc import Mapping

from flowmesh_core.graph.plan import Plan


def remaining_s(plan: Plan, seconds: Mapping[str, float]) -> dict[str, float]:
    """Returns the seconds from the start of each step to the end of the longest path after it.

    Args:
        plan: a compiled workflow.
        seconds: each step's own seconds, by path; 0 where it is missing (for example, a hit).
    """
    behind = dict.fromkeys((s.path for s in plan.steps), 0.0)
    total: dict[str, float] = {}
    for step in reversed(plan.steps):
        total[step.path] = seconds.get(step.path, 0.0) + behind[step.path]
        for parent in step.parents():
            behind[parent] = max(behind[parent], total[step.path])
    return total
