"""How far what an attempt makes is trusted: its result, and its checkpoints."""

from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.machine.model import Attempt
from flowmesh_core.machine.state import State

NO_TRUST = -1
"""The trust of a result that nothing accepts."""


def trust_of(state: State, worker: Worker, attempt: Attempt | None) -> int:
    """Returns the trust of what an attempt makes: its pool's, the less of at its start and now.

    No more than that of the checkpoint that it began at, which another worker may have made; less
    than any where its worker is not believed any more.

    Args:
        state: the machine's.
        worker: that has the attempt.
        attempt: None for one of an earlier epoch that was not adopted yet.
    """
    if state.disbelieved and (worker.shape.pool, worker.name) in state.disbelieved:
        return NO_TRUST
    if attempt is None:
        return worker.shape.trust
    trust = min(attempt.shape.trust, worker.shape.trust)
    return trust if attempt.resumed_trust is None else min(trust, attempt.resumed_trust)
