"""Stragglers: attempts that run far longer than others of their kind, while a worker idles.

Each may get a replica attempt on another worker: the first publication wins, the other stops.
"""

from flowmesh_api.v1.enums import ActionState
from flowmesh_core.catalog.contract import Determinism
from flowmesh_core.catalog.determinism import determinism_of
from flowmesh_core.costmodel.model import CostKey
from flowmesh_core.fleet.snapshot import SignatureInfo
from flowmesh_core.machine.eligibility import eligible
from flowmesh_core.machine.model import Attempt
from flowmesh_core.machine.state import State

SEEN = 3
"""Attempts that the cost model must have observed; with fewer, long cannot be told from late."""


def find_stragglers(state: State, now_s: float) -> list[tuple[Attempt, SignatureInfo]]:
    """Returns the attempts that a replica would help, with what the replica requires.

    None while no worker idles, or once an attempt stores its outputs: a replica would begin the
    work anew. An attempt on a worker that does not meet a subscription's own requirement may never
    count for that one, which gets a replica where it would run alone.
    """
    settings = state.settings
    idle = (w for w in state.workers.values() if not w.attempts)
    if not settings.replicas or not any(map(state.takes_work, idle)):
        return []
    found = []
    for attempt in state.attempts.values():
        long_s = max(settings.replica_after_s, settings.replica_factor * attempt.predicted_s)
        if not attempt.running_s or now_s - attempt.running_s <= long_s:
            continue
        if attempt.info.suspects_of or not _may_have_another(attempt):
            continue
        is_late = attempt.phase != "storing" and _is_known(state, attempt)
        info = _unserved(attempt) or (attempt.info if is_late else None)
        if info is not None:
            found.append((attempt, info))
    return found


def _unserved(attempt: Attempt) -> SignatureInfo | None:
    """The requirement of the first subscription that the attempt does not count for."""
    for subscription in attempt.action.subscribers.values():
        if not eligible(attempt, subscription.terms):
            return subscription.terms.info
    return None


def _may_have_another(attempt: Attempt) -> bool:
    action, spec = attempt.action, attempt.action.spec
    alone = len(action.attempts) == 1 and action.state is ActionState.RUNNING
    external = determinism_of(spec.contract, spec.params, spec.fields) is Determinism.EXTERNAL
    return alone and not external


def _is_known(state: State, attempt: Attempt) -> bool:
    if attempt.worker not in state.workers:
        return False
    key, device_class = CostKey.of(attempt.info), attempt.shape.device_class
    return state.model.predict(key, device_class, attempt.action.spec.work).samples >= SEEN
