"""Stragglers: attempts that run far longer than others of their kind, while a worker idles.

Each may get a replica attempt on another worker: the first publication wins, the other stops.
"""

from flowmesh_api.v1.enums import ActionState
from flowmesh_core.catalog.contract import Determinism
from flowmesh_core.catalog.determinism import determinism_of
from flowmesh_core.costmodel.model import CostKey
from flowmesh_core.machine.model import Attempt
from flowmesh_core.machine.state import State

SEEN = 3
"""Attempts that the cost model must have observed; with fewer, long cannot be told from late."""


def find_stragglers(state: State, now_s: float) -> list[Attempt]:
    """Returns the attempts that a replica would help; none while no worker idles."""
    settings = state.settings
    idle = (w for w in state.workers.values() if not w.attempts)
    if not settings.replicas or not any(map(state.takes_work, idle)):
        return []
    return [
        attempt
        for attempt in state.attempts.values()
        if attempt.running_s
        and now_s - attempt.running_s
        > max(settings.replica_after_s, settings.replica_factor * attempt.predicted_s)
        and _may_have_another(attempt)
        and _is_known(state, attempt)
    ]


def _may_have_another(attempt: Attempt) -> bool:
    action, spec = attempt.action, attempt.action.spec
    alone = len(action.attempts) == 1 and action.state is ActionState.RUNNING
    external = determinism_of(spec.contract, spec.params, spec.fields) is Determinism.EXTERNAL
    return alone and not external


def _is_known(state: State, attempt: Attempt) -> bool:
    spec, worker = attempt.action.spec, state.workers.get(attempt.worker)
    if worker is None:
        return False
    key = CostKey.of(spec.info)
    return state.model.predict(key, worker.shape.device_class, spec.work).samples >= SEEN
