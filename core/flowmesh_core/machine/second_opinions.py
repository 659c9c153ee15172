"""A second opinion on failures of the work that a worker of little trust reports.

``bad-input``, ``user-code`` and ``timeout`` are final: the same work fails again. A worker that is
not trusted could so fail the steps of others. Where its pool has trust 0 or 1 and the scope is
shared, another worker's attempt decides, if another can make one; else the report is final at once.
"""

from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.machine.model import Attempt
from flowmesh_core.machine.state import State
from flowmesh_core.machine.terms import Subscription
from flowmesh_core.placement.constraints import unmet
from flowmesh_core.sharing.scopes import is_shared
from flowmesh_core.units import DEFAULT_TRUST

DOUBTED = frozenset({FailureKind.BAD_INPUT, FailureKind.USER_CODE, FailureKind.TIMEOUT})


def needed(state: State, attempt: Attempt, own: Subscription, failure: Failure) -> bool:
    """Whether a failure of an attempt is not final for a subscription that it counts for.

    At most one for each subscription. The fabric pays for the attempt that is doubted.
    """
    return (
        failure.kind in DOUBTED
        and attempt.shape.trust < DEFAULT_TRUST
        and attempt.end is not None
        and not own.second_opinion
        and not attempt.action.spec.once
        and is_shared(attempt.action.key.scope)
        and _another_worker(state, attempt, own)
    )


def _another_worker(state: State, attempt: Attempt, own: Subscription) -> bool:
    requirement = own.terms.info.requirement
    return any(
        worker.name != attempt.worker
        and state.takes_work(worker)
        and unmet(requirement, worker.shape) is None
        for worker in state.workers.values()
    )
