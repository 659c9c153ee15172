"""The paper's DS baseline, after JellyBean: each kind of step has fixed workers."""

from collections.abc import Sequence

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.machine.state import State
from flowmesh_core.placement.capacity import WorkerCapacity
from flowmesh_sim.policies.filling import CapacityTracker

GB = 1e9
SIZES = (("large", 10.0), ("middle", 4.0), ("small", 0.0))
"""Kinds of inference by the gigabytes of their weights, largest first."""
ORDER = ("training", *(name for name, _ in SIZES))


class StaticRouting:
    """Steps go to the workers of their kind: training, or inference by the size of the model.

    The workers, those with the most memory first, are divided among the kinds in proportion to
    their shares of the work, at least one each if there are enough; so training and the large model
    get the large devices. Shares are known beforehand, as JellyBean knows them from profiles. A
    device runs one step at a time. Fair to the baseline: within a kind the first free worker gets
    the oldest step, engines stay loaded, and steps that need no device run anywhere at once. A step
    that does not fit its kind's devices goes to those of the next larger kind.
    """

    def __init__(self, **shares: float) -> None:
        """Sets each kind's share of the work; kinds without a share get no workers.

        Raises:
            TypeError: a kind is unknown.
        """
        unknown = sorted(set(shares) - set(ORDER))
        if unknown:
            raise TypeError(f"no kind {unknown[0]!r}; there are {', '.join(ORDER)}")
        self._shares = shares or {name: 1.0 for name, _ in SIZES}

    def decide(self, snapshot: Snapshot, model: CostModel, state: State) -> Decision:
        """Places each kind's steps on its workers."""
        filling = CapacityTracker(snapshot, model, state)
        routes = designate(filling.accounts, self._shares)
        for action in filling.due():
            light = not filling.on_device(action)
            if not (light or filling.free):
                continue
            for account in filling.accounts if light else _route(filling, routes, action):
                if not (light or account in filling.free):
                    continue
                if filling.able(account, action) and filling.has_capacity(account, action):
                    filling.place(account, action)
                    break
        return filling.decision()


def designate(
    accounts: Sequence[WorkerCapacity], shares: dict[str, float]
) -> dict[str, list[WorkerCapacity]]:
    """Returns the workers of each kind; kinds share one if there are too few workers."""
    kinds = [kind for kind in ORDER if shares.get(kind, 0.0) > 0.0]
    ranked = sorted(accounts, key=lambda a: (-a.view.shape.device_memory_mib, a.view.name))
    if not ranked or not kinds:
        return {kind: list(ranked) for kind in kinds}
    whole = sum(shares[kind] for kind in kinds)
    counts = dict.fromkeys(kinds, 1)
    for _ in range(len(ranked) - len(kinds)):  # the next worker goes to the kind that needs it most
        neediest = max(kinds, key=lambda k: shares[k] / whole / counts[k])
        counts[neediest] += 1
    routes: dict[str, list[WorkerCapacity]] = {}
    begin = 0
    for kind in kinds:
        last = min(begin, len(ranked) - 1)
        routes[kind] = ranked[last : last + counts[kind]]
        begin += counts[kind]
    return routes


def kind_of(filling: CapacityTracker, action: ReadyAction) -> str:
    """Returns the kind of an action: training, or inference by the size of its model."""
    info = filling.snapshot.signatures[action.signature]
    if info.requirement.engine.startswith("train."):
        return "training"
    size_gb = sum(size for _, size in info.components) / GB
    return next(name for name, least in SIZES if size_gb >= least)


def _route(
    filling: CapacityTracker, routes: dict[str, list[WorkerCapacity]], action: ReadyAction
) -> list[WorkerCapacity]:
    """Returns the kind's workers, or those of the next larger kind that can run the step."""
    kind = kind_of(filling, action)
    for name in reversed(ORDER[: ORDER.index(kind) + 1]):
        found = routes.get(name, [])
        if any(filling.able(account, action) for account in found):
            return found
    return filling.accounts
