"""The order of Halo: operators of a batch of graphs go to workers by a plan of the next epoch."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.machine.state import State
from flowmesh_core.units import Digest
from flowmesh_sim.policies.filling import CapacityTracker
from flowmesh_sim.policies.halo_epoch import EpochWorker, plan_epoch
from flowmesh_sim.policies.predictions import Predictions

OPERATORS_MAX = 64
"""Operators of a plan."""


class Operator(NamedTuple):
    """Ready calls of one model, of all workflows: at most what one engine runs at once.

    Attributes:
        signature: of all of them.
        actions: the calls, those with the longest path to the end of their workflow first.
    """

    signature: Digest
    actions: tuple[ReadyAction, ...]


class Halo:
    """The scheduler of Halo (Shen, Wadlom and Lu, arXiv:2509.02121), for workflows that arrive.

    Modelled: the workflows are one consolidated graph, whose equal work runs once (a scenario
    shares among ``all``). The ready calls of one model, of all workflows, are an operator, which
    runs as one batch. Operators with the longest path to the end come first. A beam search (of the
    paper's first version, with its objective) maps them to workers so that the last worker is done
    soonest; a worker takes, for each operator, the time to load its model (none where it is loaded)
    and the time to run it. A worker runs one model at a time; calls of the model that it is running
    join it (adaptive batching). Steps that need no device run at once (pipelining of CPU and GPU
    work).

    Not modelled: one plan for the whole graph in advance (the second version of the paper finds it
    by dynamic programming over epochs). Since workflows arrive, an epoch is planned anew whenever
    something is ready, as its online mode does for each mini-batch, and the rest of the graph
    counts only by the length of its paths. Neither are the reuse and migration of KV caches, since
    the simulator has no prefix caching, nor costs of tools.

    In its favour: models stay loaded where memory allows, an operator that is larger than an
    engine's capacity is divided among workers, and predictions are those of the shipped cost model.
    """

    def decide(self, snapshot: Snapshot, model: CostModel, state: State) -> Decision:
        """Places what the plan of the next epoch begins with."""
        filling = CapacityTracker(snapshot, model, state)
        calls = []
        for action in sorted(filling.due(), key=lambda a: -a.critical_path_s):
            if filling.on_device(action):
                calls.append(action)
            else:
                filling.place_first(action)
        running = [filling.device_work(account) for account in filling.accounts]
        waiting = {action.signature for action in calls}
        if any(len(models) <= 1 and models <= waiting for models in running):
            for operator, place in _planned(filling, Predictions(snapshot, model), running, calls):
                if running[place] <= {operator.signature}:
                    running[place] = {operator.signature}
                    account = filling.accounts[place]
                    for action in operator.actions:
                        if filling.has_capacity(account, action):
                            filling.place(account, action)
        return filling.decision()


def _planned(
    filling: CapacityTracker,
    predictions: Predictions,
    running: Sequence[set[Digest]],
    calls: Sequence[ReadyAction],
) -> Iterator[tuple[Operator, int]]:
    """Yields the operators of the next epoch, each with the number of its worker."""
    sizes = {s: info.capacity for s, info in filling.snapshot.signatures.items()}
    operators = operators_of(calls, sizes)
    workers = [
        EpochWorker(
            max((i.remaining_s for i in a.view.instances.values() if i.assigned), default=0.0),
            next(iter(models)) if len(models) == 1 else None,
        )
        for a, models in zip(filling.accounts, running, strict=True)
    ]
    seconds = [(o.signature, _seconds(filling, predictions, o)) for o in operators]
    for operator, place in zip(operators, plan_epoch(workers, seconds), strict=True):
        if place is not None:
            yield operator, place


def _seconds(
    filling: CapacityTracker, predictions: Predictions, operator: Operator
) -> dict[int, tuple[float, float]]:
    """Returns the seconds that each able worker takes to load the model, and to run the calls."""
    found: dict[int, tuple[float, float]] = {}
    run_s: dict[str, float] = {}
    beside = len(operator.actions)
    for n, account in enumerate(filling.accounts):
        kind = account.view.shape.device_class
        if filling.able(account, operator.actions[0]):
            if kind not in run_s:
                run_s[kind] = max(predictions.run_s(account, a, beside) for a in operator.actions)
            found[n] = predictions.load_s(account, operator.actions[0]), run_s[kind]
    return found


def operators_of(calls: Sequence[ReadyAction], sizes: Mapping[Digest, int]) -> list[Operator]:
    """Divides ready calls into operators, those with the longest path first.

    Args:
        calls: with the longest path to the end of their workflow first.
        sizes: the calls that an engine of each signature runs at once.
    """
    by_model = defaultdict[Digest, list[ReadyAction]](list)
    for action in calls:
        by_model[action.signature].append(action)
    found = [
        Operator(signature, tuple(actions[n : n + sizes[signature]]))
        for signature, actions in by_model.items()
        for n in range(0, len(actions), sizes[signature])
    ]
    found.sort(key=lambda operator: -operator.actions[0].critical_path_s)
    return found[:OPERATORS_MAX]
