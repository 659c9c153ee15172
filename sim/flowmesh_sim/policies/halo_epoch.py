"""The search of Halo's optimizer for a mapping of operators to workers; pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import NamedTuple

from flowmesh_core.units import Digest

BEAM = 4
"""Partial plans that are kept."""


class EpochWorker(NamedTuple):
    """A worker at the beginning of an epoch.

    Attributes:
        busy_s: seconds until what it runs is done.
        model: the signature whose calls it runs, where they are of one.
    """

    busy_s: float
    model: Digest | None


@dataclass(frozen=True, slots=True)
class PartialPlan:
    """A mapping of the first operators.

    Attributes:
        busy_s: by worker, the seconds until its operators are done.
        models: by worker, the signatures of the operators that it was given.
        places: the worker of each operator; None where no worker can run it.
        cost: the seconds of the last worker to be done, then those of all.
    """

    busy_s: tuple[float, ...]
    models: tuple[frozenset[Digest], ...]
    places: tuple[int | None, ...]
    cost: tuple[float, float]

    def cost_with(self, place: int, busy_s: float) -> tuple[float, float]:
        """Returns the cost if a worker is busy so long, at least as long as before."""
        return max(self.cost[0], busy_s), self.cost[1] + busy_s - self.busy_s[place]

    def given(self, signature: Digest, place: int, busy_s: float) -> "PartialPlan":
        """Returns the plan with one more operator, after which the worker is busy so long."""
        all_busy_s, models = list(self.busy_s), list(self.models)
        all_busy_s[place] = busy_s
        models[place] |= {signature}
        cost = self.cost_with(place, busy_s)
        return PartialPlan(tuple(all_busy_s), tuple(models), (*self.places, place), cost)


def plan_epoch(
    workers: Sequence[EpochWorker],
    operators: Sequence[tuple[Digest, Mapping[int, tuple[float, float]]]],
) -> tuple[int | None, ...]:
    """Returns the worker of each operator in the best plan that a beam search finds.

    A worker does its operators one after another, but an operator of the model that it is running
    joins that.

    Args:
        workers: all of them.
        operators: in the order in which they are mapped: the signature, and for each worker that
            can run it the seconds to load its model and to run it.
    """
    busy_s = tuple(worker.busy_s for worker in workers)
    nothing = (frozenset[Digest](),) * len(workers)
    plans = [PartialPlan(busy_s, nothing, (), (max(busy_s, default=0.0), sum(busy_s)))]
    for signature, seconds in operators:
        if not seconds:
            plans = [replace(plan, places=(*plan.places, None)) for plan in plans]
            continue
        choices = (
            (plan.cost_with(n, until_s), rank, n, until_s)
            for rank, plan in enumerate(plans)
            for n, until_s in _choices(plan, workers, signature, seconds)
        )
        best = nsmallest(BEAM, choices)
        plans = [plans[rank].given(signature, n, until_s) for _, rank, n, until_s in best]
    return plans[0].places


def _choices(
    plan: PartialPlan,
    workers: Sequence[EpochWorker],
    signature: Digest,
    seconds: Mapping[int, tuple[float, float]],
) -> Iterator[tuple[int, float]]:
    """Yields workers, each with how long the operator would keep it busy; of equals one."""
    seen = set()
    for n, (load_s, run_s) in seconds.items():
        busy_s, models = plan.busy_s[n], plan.models[n]
        if not models and workers[n].model == signature:
            until_s = max(busy_s, load_s + run_s)
        else:
            until_s = busy_s + run_s + (0.0 if signature in models else load_s)
        alike = (busy_s, until_s, models)
        if alike not in seen:
            seen.add(alike)
            yield n, until_s
