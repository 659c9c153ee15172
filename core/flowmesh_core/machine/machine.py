"""The machine: events in, commands out. It reads no clock, and nothing else changes its state.

The control plane, on a laptop or in a cluster, and the simulator run this same code::

    commands = machine.apply(event, now_s)
    decision = decide(machine.snapshot(now_s), machine.state.model)
    commands = machine.apply(PlacementDecided(decision), now_s)
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flowmesh_core.accounting.daily_totals import DailyTotals, Hours
from flowmesh_core.accounting.fabric_account import FabricAccount
from flowmesh_core.accounting.service_charges import ServiceCharges, ServiceDay
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.costmodel.model import CostModel
from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.fleet.memory_limits import MemoryLimits
from flowmesh_core.fleet.snapshot import Snapshot
from flowmesh_core.machine import (
    actions,
    attempts,
    billing,
    budgets,
    cache_hits,
    checkpoints,
    conditions,
    dispatch,
    effective_requirement,
    fleet_snapshot,
    namespace_limits,
    pending_publications,
    prewarm,
    protocol_violations,
    repin,
    reserved_pools,
    revocation,
    run_lifecycle,
    serving,
    steps,
    stragglers,
    timeouts,
    workers,
)
from flowmesh_core.machine.commands import CancelAttempt, Command
from flowmesh_core.machine.events import (
    Amended,
    BlobsChecked,
    CancelRequested,
    ConditionEvaluated,
    ContentRevoked,
    ControlStalled,
    CordonChanged,
    Event,
    LookedUp,
    NamespaceLimitsChanged,
    PlacementDecided,
    PrewarmPlanChanged,
    ProtocolViolated,
    PublishDelayed,
    Published,
    PublishFailed,
    Repinned,
    ReservedPoolsChanged,
    RunFinalized,
    ServingPlanChanged,
    Submitted,
    TimeAdvanced,
    WeightsChanged,
    WorkerConnected,
    WorkerDisagreed,
    WorkerLost,
    WorkerSynced,
    WorkerTrustChanged,
)
from flowmesh_core.machine.settings import Settings
from flowmesh_core.machine.state import State
from flowmesh_core.metrics.counters import MachineCounters
from flowmesh_core.placement.fair_share import FairShare

LONGEST_TICK_S = 5.0
"""Seconds between two ticks that count as worker time, at most: after a longer silence (a suspended
machine) it is unknown what the workers did."""


class Machine:
    """All runs, actions and workers of one control plane.

    Attributes:
        state: everything it knows; projections read it and never change it.
    """

    def __init__(
        self,
        *,
        epoch: int,
        catalog: Catalog,
        settings: Settings,
        model: CostModel,
        book: FabricAccount | None = None,
        figures: MachineCounters | None = None,
        billed: Mapping[str, int] | None = None,
        unsettled: Mapping[str, int] | None = None,
        paid: Mapping[str, tuple[float, float]] | None = None,
        spent: Mapping[str, Hours] | None = None,
        services: Mapping[str, int] | None = None,
        service_days: Iterable[ServiceDay] = (),
        recovering_until_s: float = 0.0,
        on_settle: Callable[[str], None] = lambda _: None,
        prefix_salt: Callable[[str], str] = str,
    ) -> None:
        """Starts without runs and workers.

        Args:
            epoch: this control plane's epoch; part of every attempt's id.
            catalog: the contracts that plans may use.
            settings: fixed from now on.
            model: the cost model; learns in place.
            book: accounts of earlier epochs to continue.
            figures: counters to continue, such as the shares of those accounts.
            billed: incarnation of a worker → nano-dollars that earlier epochs billed for it.
            unsettled: attempt of an earlier epoch → nano-dollars that it was charged there: the
                fabric pays them until it is adopted.
            paid: what tenants paid recently in earlier epochs, as ``FairShare.paid`` returned it.
            spent: what namespaces paid in the last day, as ``DailyTotals.current`` returned it.
            services: service → nano-dollars that its replicas have cost in earlier epochs.
            service_days: the latest days of it, as ``ServiceCharges.rows`` returned them.
            recovering_until_s: dispatch nothing before; until then workers report what they run.
            on_settle: called with the uid of each run whose steps are about to be settled.
            prefix_salt: returns the salt of prefix caches for a scope: unpredictable, constant.
        """
        self._on_settle = on_settle
        self.state = State(
            epoch=epoch,
            catalog=catalog,
            settings=settings,
            model=model,
            fair=FairShare(settings.tenant_weights, paid),
            learned=MemoryLimits(),
            book=book or FabricAccount(),
            figures=figures or MachineCounters(),
            resumed_bills=dict(billed or {}),
            resumed_charges=dict(unsettled or {}),
            daily_spend=DailyTotals(spent),
            service_spend=Counter(services or {}),
            service_charges=ServiceCharges(service_days),
            recovering_until_s=recovering_until_s,
            reserved_pools=None if settings.pools_are_declared else {},
            prefix_salt=prefix_salt,
        )

    @property
    def wants_decision(self) -> bool:
        """Whether ready work or the fleet has changed since the last snapshot, or some is late."""
        return self.state.dirty and bool(self.state.ready or self.state.late)

    def snapshot(self, now_s: float) -> Snapshot:
        """Returns what the scheduler decides on now."""
        self.state.dirty = False
        return fleet_snapshot.snapshot(self.state, now_s)

    def apply(self, event: Event, now_s: float) -> list[Command]:
        """Applies one event and returns the commands that follow from it.

        Args:
            event: what happened; a repeated or stale one changes nothing.
            now_s: seconds since the epoch (UTC); it may step back.

        Raises:
            InvariantError: a state was to change in a way that its transition table does not allow.
        """
        state = self.state
        _HANDLERS[type(event)](state, event, now_s)
        while state.touched or state.orphaned_ends or state.orphaned_attempts:
            if state.orphaned_ends or state.orphaned_attempts:
                attempts.adopt_orphans(state, now_s)
            touched, state.touched = state.touched, {}
            for uid in touched:
                run = state.runs.get(uid)
                if run is not None:
                    self._on_settle(uid)
                    steps.settle(state, run, now_s)
                    run_lifecycle.end_if_over(state, run, now_s)
            if not state.touched:
                break
        return state.commands()


def _control_stalled(state: State, _: ControlStalled, now_s: float) -> None:
    for worker in state.workers.values():
        billing.accrue_unobserved(state, worker, now_s)


def _looked_up(state: State, event: LookedUp, now_s: float) -> None:
    cache_hits.looked_up(state, event, now_s)
    steps.step_looked_up(state, event, now_s)


def _weights_changed(state: State, event: WeightsChanged, _: float) -> None:
    state.fair.set_weights({**state.settings.tenant_weights, **event.weights})
    state.dirty = True


def _cancel_requested(state: State, event: CancelRequested, now_s: float) -> None:
    failure = Failure(FailureKind.CANCELLED, event.reason)
    run_lifecycle.cancel(state, event.uid, failure, now_s)


def _time_advanced(state: State, _: TimeAdvanced, now_s: float) -> None:
    passed_s = min(max(0.0, now_s - state.ticked_s), LONGEST_TICK_S) if state.ticked_s else 0.0
    state.ticked_s = now_s
    state.observed_s += passed_s
    for name, worker in list(state.workers.items()):
        state.figures.worker_s[worker.shape.pool][not worker.attempts] += passed_s
        if serving.is_idle(worker):
            state.figures.replica_idle_s[worker.shape.pool][not worker.attempts] += passed_s
        if now_s - worker.last_seen_s > state.settings.watchdog_s:
            workers.lost(state, name, "no synchronisation within the watchdog", now_s)
        else:
            billing.accrue(state, worker, now_s)
    checkpoints.note_all(state, now_s)
    pending_publications.time_passed(state, now_s)
    run_lifecycle.deadlines(state, now_s)
    budgets.overspent(state, now_s)
    namespace_limits.time_passed(state, now_s)
    for action, failures in timeouts.expired(state):
        actions.leave(state, action, failures)
    effective_requirement.take_turns(state)
    state.late = bool(stragglers.find_stragglers(state, now_s))
    state.dirty = state.dirty or bool(state.ready) or state.late
    if state.recovering_until_s and now_s >= state.recovering_until_s:
        state.recovering_until_s = 0.0
        _end_recovery(state)


def _end_recovery(state: State) -> None:
    """Cancels the attempts of earlier epochs that no run wants any more."""
    state.dirty = True
    for orphan in state.orphaned_attempts.values():
        state.emit(CancelAttempt(orphan.worker, orphan.attempt_id))
    state.orphaned_attempts.clear()
    state.orphaned_checkpoints.clear()
    state.resumed_charges.clear()


_HANDLERS: Mapping[type, Callable[[State, Any, float], None]] = {
    WorkerSynced: workers.synced,
    Published: pending_publications.answered,
    PublishFailed: pending_publications.answered,
    PublishDelayed: pending_publications.answered,
    LookedUp: _looked_up,
    PlacementDecided: lambda state, e, now_s: dispatch.decided(state, e.decision, now_s),
    TimeAdvanced: _time_advanced,
    ControlStalled: _control_stalled,
    Submitted: run_lifecycle.submitted,
    WorkerConnected: lambda state, e, now_s: workers.connected(
        state, e.hello, e.generations, now_s
    ),
    ProtocolViolated: lambda state, e, _: protocol_violations.violated(state, e.name, e.pool),
    WorkerDisagreed: lambda state, e, _: protocol_violations.disagreed(state, e.name, e.pool),
    WorkerLost: lambda state, e, now_s: workers.lost(state, e.name, e.reason, now_s),
    WorkerTrustChanged: lambda state, e, _: workers.trust_changed(state, e),
    CordonChanged: lambda state, e, _: workers.cordoned(state, e.workers),
    WeightsChanged: _weights_changed,
    ReservedPoolsChanged: lambda state, e, _: reserved_pools.changed(state, e.pools),
    NamespaceLimitsChanged: lambda state, e, now_s: namespace_limits.changed(
        state, e.limits, now_s
    ),
    PrewarmPlanChanged: lambda state, e, _: prewarm.send_prewarm_plans(state, e.workers),
    ServingPlanChanged: serving.plan_changed,
    BlobsChecked: lambda state, e, now_s: run_lifecycle.blobs_checked(
        state, e.uid, e.missing, now_s
    ),
    ConditionEvaluated: conditions.evaluated,
    Amended: lambda state, e, now_s: run_lifecycle.amended(state, e.uid, e.changes, now_s),
    Repinned: repin.repinned,
    CancelRequested: _cancel_requested,
    ContentRevoked: lambda state, e, _: revocation.revoked(state, e),
    RunFinalized: lambda state, e, _: run_lifecycle.finalised(state, e.uid),
}
"""A table, since ``match`` tests one class after the other, for several events an action."""
