"""The order of Helium: calls with equal prompt prefixes next to each other, longest paths first."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.machine.state import State
from flowmesh_core.placement.capacity import WorkerCapacity
from flowmesh_core.units import Digest
from flowmesh_sim.policies.filling import CapacityTracker
from flowmesh_sim.policies.predictions import Predictions

PREFIX_PARAMS = ("system", "tools", "prompt")
"""Parameters of a call that its prompt begins with, for every row."""


class Prefix(NamedTuple):
    """The path of a call in the templated radix tree, from the root.

    Attributes:
        signature: model and engine.
        template: the static part of its prompt.
        rows: the first of its inputs, which follows it.
    """

    signature: Digest
    template: str
    rows: Digest


class Helium:
    """The scheduler of Helium (Wadlom, Shen and Lu, arXiv:2603.16104), for workflows that arrive.

    Modelled: equal work of all workflows runs once and results stay (common subgraphs, the prompt
    cache: a scenario shares among ``all``). Calls are ordered by a depth-first walk of a templated
    radix tree: model, then the static prefix of the prompt, then the input; of several subtrees the
    one with the longest path to the end of a workflow comes first. So calls with equal prefixes are
    next to each other. Each goes to the worker where it is predicted to end first, loading
    included; of workers that are about equal (to a second), to one that has had its prefix. All
    engines of a worker run side by side.

    Not modelled: one schedule of the whole graph in advance, with delays for calls whose parents
    are not done; since workflows arrive, the ready calls are ordered anew at each decision, and the
    rest of the graph counts only by the length of its paths. Neither are the KV cache and its
    warming in advance, since the simulator has no prefix caching: what the order would save in
    prompts is not saved.

    In its favour: predictions are those of the shipped cost model.
    """

    def __init__(self) -> None:
        """Starts with no prefix on any worker."""
        self._prefixes: dict[str, set[tuple[Digest, str]]] = {}

    def decide(self, snapshot: Snapshot, model: CostModel, state: State) -> Decision:
        """Places the ready calls in the order of the tree; others in order of readiness."""
        filling = CapacityTracker(snapshot, model, state)
        predictions = Predictions(snapshot, model)
        names = {account.view.name for account in filling.accounts}
        self._prefixes = {w: found for w, found in self._prefixes.items() if w in names}
        calls = []
        for action in filling.due():
            if filling.on_device(action):
                calls.append((prefix_of(state, action), action))
            else:
                filling.place_first(action)
        full = set[Digest]()
        for prefix, action in depth_first(calls):
            if prefix.signature in full:
                continue
            account = self._soonest(filling, predictions, prefix, action)
            if account is None:
                if not (action.isolate or action.replica_of):
                    full.add(prefix.signature)
                continue
            filling.place(account, action)
            known = self._prefixes.setdefault(account.view.name, set())
            known.add((prefix.signature, prefix.template))
        return filling.decision()

    def _soonest(
        self,
        filling: CapacityTracker,
        predictions: Predictions,
        prefix: Prefix,
        action: ReadyAction,
    ) -> WorkerCapacity | None:
        """Returns the worker with room where the action ends first; None without one."""
        found: list[tuple[int, bool, float, int]] = []
        for n, account in enumerate(filling.accounts):
            if filling.able(account, action) and filling.has_capacity(account, action):
                end_s = _end_s(filling, predictions, account, action)
                known = self._prefixes.get(account.view.name, ())
                found.append((round(end_s), prefix[:2] not in known, end_s, n))
        return filling.accounts[min(found)[3]] if found else None


def prefix_of(state: State, action: ReadyAction) -> Prefix:
    """Returns the path of an action in the tree."""
    scope, _, action_id = action.action_id.partition("/")
    params = state.actions[ActionKey(scope, Digest(action_id))].spec.params
    template = str([params.get(name) for name in PREFIX_PARAMS])
    rows = action.inputs[0][0] if action.inputs else Digest("")
    return Prefix(action.signature, template, rows)


def depth_first(calls: Sequence[tuple[Prefix, ReadyAction]]) -> list[tuple[Prefix, ReadyAction]]:
    """Returns the calls in the order of the tree, the subtree with the longest path first."""
    longest_s = defaultdict[tuple[str, ...], float](float)
    for prefix, action in calls:
        for depth in range(1, len(prefix) + 1):
            subtree = prefix[:depth]
            longest_s[subtree] = max(longest_s[subtree], action.critical_path_s)

    def key(call: tuple[Prefix, ReadyAction]) -> tuple[object, ...]:
        prefix, action = call
        path = [(-longest_s[prefix[: n + 1]], name) for n, name in enumerate(prefix)]
        return (*path, action.ready_s, action.action_id)

    return sorted(calls, key=key)


def _end_s(
    filling: CapacityTracker,
    predictions: Predictions,
    account: WorkerCapacity,
    action: ReadyAction,
) -> float:
    """Returns the predicted seconds until the action ends on a worker, whose engines share it."""
    instance = account.instance(filling.snapshot.signatures[action.signature])
    others = filling.device_work(account) - {action.signature}
    beside = 1 if instance is None else min(instance.assigned + 1, instance.capacity)
    run_s = predictions.run_s(account, action, beside) * (1 + len(others))
    queued = instance is not None and instance.assigned >= instance.capacity
    view = account.view.instances.get(action.signature)
    waits_s = (view.remaining_s if view else run_s) if queued else 0.0
    return max(predictions.load_s(account, action), waits_s) + run_s
