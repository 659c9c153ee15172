"""Checks fair shares: they equal the payments, and the tenant that paid least is served first.

The shares are recomputed from the ledgers. For each decision, if two tenants have actions in one
group: a tenant without a placement must not have paid less than one with a placement. If more than
one worker can run the group, waiting for the other worker may be better, so nothing is checked.
"""

from math import exp2, isclose
from typing import TYPE_CHECKING

from flowmesh_api.v1.why import AttemptLine
from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.fleet.ready_index import ReadyGroup
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.placement.settings import FAIR_SHARE_HALF_LIFE_S
from flowmesh_core.units import Digest
from flowmesh_sim.kernel.violation import violated

if TYPE_CHECKING:
    from flowmesh_sim.control.control import SimulatedControlPlane

TOLERANCE = 1e-6
NANOUSD = 2.0
"""Smaller differences are rounding errors."""


class FairnessInvariants:
    """Recomputes what every tenant paid in an epoch, with the half-life of the fair share."""

    def __init__(self) -> None:
        self._paid: dict[int, dict[str, tuple[float, float]]] = {}
        self._by_wall = True

    def clock_was_set(self) -> None:
        """Disables the check of shares: the ages of payments are not known any more."""
        self._by_wall = False

    def appended(self, control: "SimulatedControlPlane", uid: str, line: Line) -> None:
        """Adds the payment of a ledger line."""
        if isinstance(line, AttemptLine):
            tenant = control.machine.state.runs[uid].plan.namespace
            paid = self._paid.setdefault(control.epoch, {})
            before = _decayed(paid.get(tenant), line.time_s)
            paid[tenant] = (before + line.share_nanousd, line.time_s)

    def began(self, control: "SimulatedControlPlane") -> None:
        """Starts an epoch from the shares that were durable."""
        self._paid[control.epoch] = control.machine.state.fair.paid(control.now_s())

    def observe(self, control: "SimulatedControlPlane") -> None:
        """Compares the machine's shares with the payments."""
        if not self._by_wall:
            return
        now_s = control.now_s()
        for tenant, account in self._paid.get(control.epoch, {}).items():
            counted = control.machine.state.fair.virtual_time(tenant, now_s)
            paid = _decayed(account, now_s)
            if not isclose(counted, paid, rel_tol=TOLERANCE, abs_tol=NANOUSD):
                if any(w.unpriced is not None for w in control.machine.state.workers.values()):
                    self._by_wall = False  # what counts of their time is in no ledger
                    return
                violated(
                    f"tenant {tenant}", f"paid {paid:.0f} of late, its share says {counted:.0f}"
                )

    def decided(self, snapshot: Snapshot, decision: Decision) -> None:
        """Checks a decision on its snapshot."""
        if len(snapshot.ready.heads) < 2:  # noqa: PLR2004 - only one tenant
            return
        served = _served(snapshot, decision)
        for group in snapshot.ready.groups.values():
            several = len(group.queues) > 1 and not group.like.replica_of
            if several and len(_places(group.like.signature, snapshot, decision)) == 1:
                _in_order(group, snapshot, served)


Served = dict[str, set[ReadyGroup]]
"""By tenant, the groups of which an action was placed."""


def _decayed(account: tuple[float, float] | None, now_s: float) -> float:
    if account is None:
        return 0.0
    nanousd, at_s = account
    return nanousd * exp2(-(now_s - at_s) / FAIR_SHARE_HALF_LIFE_S)


def _places(signature: str, snapshot: Snapshot, decision: Decision) -> set[str]:
    """Returns the workers that run actions of a signature or were assigned some."""
    given = {p.worker for p in decision.placements if p.signature == signature}
    instances = ((w.name, w.instances.get(Digest(signature))) for w in snapshot.workers)
    return given | {
        name for name, instance in instances if instance is not None and instance.assigned
    }


def _served(snapshot: Snapshot, decision: Decision) -> Served:
    placed = {name for p in decision.placements for name in p.actions}
    found: Served = {}
    for group in snapshot.ready.groups.values():
        for tenant, queue in group.queues.items():
            if any(action.action_id in placed for _, action, _ in queue):
                found.setdefault(tenant, set()).add(group)
    return found


def _in_order(group: ReadyGroup, snapshot: Snapshot, served: Served) -> None:
    """Checks that every tenant with a placement paid no more than those without one."""
    shares = snapshot.fair_share
    for poor in (t for t in group.queues if t not in served):
        for rich in (t for t in group.queues if group in served.get(t, ())):
            if shares.get(rich, 0.0) > shares.get(poor, 0.0):
                violated(
                    f"tenant {poor}",
                    f"paid {shares.get(poor, 0.0):.0f} and waits, while {rich} is served, which "
                    f"paid {shares.get(rich, 0.0):.0f}",
                )
