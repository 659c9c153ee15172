"""The longest path through a plan, in predicted seconds.

The planner shows it as the least time that a run can take; the scheduler puts steps on it first.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from flowmesh_core.graph.plan import Plan


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The steps of the longest path, in order, and their seconds in all."""

    seconds: float
    steps: tuple[str, ...]


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


def critical_path(plan: Plan, seconds: Mapping[str, float]) -> CriticalPath:
    """Returns the longest path; among equally long ones the first in order of the plan.

    Args:
        plan: a compiled workflow.
        seconds: each step's own seconds, by path; 0 where it is missing.
    """
    total = remaining_s(plan, seconds)
    children: dict[str, list[str]] = {s.path: [] for s in plan.steps}
    starts = []
    for step in plan.steps:
        parents = step.parents()
        for parent in parents:
            children[parent].append(step.path)
        if not parents:
            starts.append(step.path)
    walk: list[str] = []
    options = starts
    while options:
        walk.append(max(options, key=lambda path: total[path]))
        options = children[walk[-1]]
    return CriticalPath(total[walk[0]] if walk else 0.0, tuple(walk))
