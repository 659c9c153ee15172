"""Which other runs are shown to a run: all, or those of its own namespace.

Where a scope is unattributed, its namespaces share results without learning who made them. A run's
ledger, and so its status, receipt and lineage, then names no run of another namespace; that a
result was shared, and what that saved, is still booked.
"""

from collections.abc import Iterable

from flowmesh_core.machine.model import Run
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import ActionResult


def producer_of(run: Run, result: ActionResult) -> str:
    """Returns the run that published a result, or nothing where this run must not learn it."""
    if run.scopes.unattributed and result.namespace != run.plan.namespace:
        return ""
    return result.run_uid


def named(state: State, run: Run, uids: Iterable[str]) -> tuple[str, ...]:
    """Returns those of some live runs that are shown to a run, in the same order."""
    if not run.scopes.unattributed:
        return tuple(uids)
    namespace = run.plan.namespace
    return tuple(u for u in uids if state.runs[u].plan.namespace == namespace)
