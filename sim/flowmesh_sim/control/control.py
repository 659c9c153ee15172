"""One simulated control plane: the shipped machine in a loop like the shipped event loop.

Events are queued, applied in order, and their commands executed; time is an event too; the policy
decides when the machine requests a scheduling cycle. Applying and deciding take virtual time, so
that a scheduler that is slow for large fleets is slow in the simulation too.
"""

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flowmesh_control.loop.event_loop import DECIDE_DUTY_RATIO, DECIDE_GAP_S
from flowmesh_control.records.accounts import capture
from flowmesh_control.runs.finalizer import outputs_of
from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.costmodel import CostModel
from flowmesh_core.costmodel.state import decode_model, encode_model
from flowmesh_core.machine.commands import Assign, ConfirmAttempts
from flowmesh_core.machine.events import (
    ActionKey,
    Event,
    PlacementDecided,
    Submitted,
    TimeAdvanced,
    WorkerConnected,
)
from flowmesh_core.machine.machine import Machine
from flowmesh_core.metrics.counters import MachineCounters
from flowmesh_core.protocol.results import ActionResult
from flowmesh_core.status.projection import run_status
from flowmesh_sim.control.command_executor import SimCommandExecutor
from flowmesh_sim.control.gateway import SimGateway
from flowmesh_sim.control.records import SimLedger, recover
from flowmesh_sim.kernel.event_kinds import kind_of
from flowmesh_sim.models.store import SimStore

if TYPE_CHECKING:
    from flowmesh_sim.control.fabric import SimulatedFabric

QUIET_TICK_S = 1.0
"""Seconds between ticks while runs exist and no action waits for a placement."""


class SimulatedControlPlane:
    """A leader, from the beginning of its epoch to its crash.

    Attributes:
        machine: the shipped machine.
        alive: whether it runs.
        applied: events so far; ``decisions`` and their virtual ``decide_s`` likewise.
    """

    def __init__(self, fabric: "SimulatedFabric") -> None:
        """Begins an epoch and recovers the unfinished runs."""
        self._fabric = fabric
        self._engine = fabric.engine
        bucket = fabric.bucket
        bucket.epoch += 1
        self.epoch = bucket.epoch
        self.alive = True
        # As the control plane's steady clock: a change of the wall clock applies at the next start.
        self._began_s = fabric.wall_s() - fabric.engine.now_s
        self._ledger = SimLedger(bucket, self.epoch)
        found = recover(bucket, self._ledger)
        settings = fabric.settings
        figures = MachineCounters()
        figures.restore(found.opening.shares, self.now_s())
        until_s = self.now_s() + settings.machine.sync_window_s if found.submitted else 0.0
        self.machine = Machine(
            epoch=self.epoch,
            catalog=fabric.catalog,
            settings=replace(settings.machine, watchdog_s=float("inf")),  # the gateway watches
            model=decode_model(bucket.model) if bucket.model else CostModel(),
            book=found.opening.book,
            figures=figures,
            billed=found.opening.billed,
            unsettled=found.opening.unsettled if found.submitted else {},
            paid=found.opening.paid_by(self.now_s()),
            services=found.opening.services,
            service_days=found.opening.service_days,
            recovering_until_s=until_s,
        )
        self.gateway = SimGateway(
            self._engine,
            epoch=self.epoch,
            post=self.post,
            knows=lambda name: name in self.machine.state.workers,
            watchdog_s=settings.machine.watchdog_s,
            interval_s=settings.sync_interval_s,
        )
        self.outside = SimCommandExecutor(
            self._engine,
            fabric.store,
            self.gateway,
            self,
            append=self._append,
            times=fabric.times,
            dice=fabric.dice,
        )
        self._events: deque[Event] = deque()
        self._is_scheduled = False
        self._busy_until_s = 0.0
        self._decide_from_s = 0.0
        self._ticking = False
        self.applied = 0
        self.decisions = 0
        self.decide_s = 0.0
        fabric.trace.add(self._engine.now_s, "epoch", self.epoch)
        fabric.checker.began(self)
        for submitted in found.submitted:
            self._events.append(submitted)
        self._begin()

    def _begin(self) -> None:
        settings = self._fabric.settings
        self._wake()
        watch_s = min(1.0, settings.machine.watchdog_s / 4)
        self._every(watch_s, self.gateway.watch)
        self._every(settings.flush_s, self._flush)
        self._every(settings.model_save_s, self._save_model)

    def _every(self, interval_s: float, call: Any) -> None:
        def run() -> None:
            if self.alive:
                call()
                self._engine.after(interval_s, run)

        self._engine.after(interval_s, run)

    def now_s(self) -> float:
        """Returns its clock: the wall clock at its start, and steady since."""
        return self._began_s + self._engine.now_s

    @property
    def virtual_s(self) -> float:
        """Virtual time."""
        return self._engine.now_s

    @property
    def store(self) -> SimStore:
        """The simulated store."""
        return self._fabric.store

    @property
    def policy(self) -> type:
        """The class of the scheduling policy."""
        return type(self._fabric.policy)

    @property
    def patience_s(self) -> float:
        """Seconds of silence after which a worker counts as lost."""
        return self._fabric.settings.machine.watchdog_s

    @property
    def busy(self) -> bool:
        """Whether it has events that are not applied yet."""
        return bool(self._events)

    # -- the event loop --------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Queues an event."""
        if self.alive:
            self._events.append(event)
            self._wake()

    def _wake(self, at_s: float = 0.0) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._engine.at(max(at_s, self._busy_until_s), self._run_once)

    def _run_once(self) -> None:
        self._is_scheduled = False
        if not self.alive:
            return
        events = self._events
        took_s = 0.0
        while events:
            self._apply(events.popleft())
            took_s += self._fabric.times.apply_s
        machine = self.machine
        if machine.wants_decision and self._engine.now_s >= self._decide_from_s:
            took_s += self._decide()
        self.outside.flush()
        self._busy_until_s = self._engine.now_s + took_s
        if machine.wants_decision:
            self._wake(max(self._decide_from_s, self._busy_until_s))
        if not self._ticking:
            self._next_tick()

    def _apply(self, event: Event) -> None:
        fabric, now_s = self._fabric, self.now_s()
        fabric.trace.add(self._engine.now_s, kind_of(event), event)
        commands = self.machine.apply(event, now_s)
        self.applied += 1
        if type(event) is WorkerConnected:
            commands.sort(key=lambda c: type(c) is not ConfirmAttempts)
        if commands:
            self.outside.execute(commands)
        fabric.checker.applied(self, event)

    def _decide(self) -> float:
        fabric, state = self._fabric, self.machine.state
        snapshot = self.machine.snapshot(self.now_s())
        decision = fabric.policy.decide(snapshot, state.model, state)
        fabric.checker.decided(self, snapshot, decision)
        times = fabric.times
        took_s = (
            times.decide_s
            + times.decide_s_per_action * len(snapshot.ready)
            + times.decide_s_per_worker * len(snapshot.workers)
        )
        self.decisions += 1
        self.decide_s += took_s
        self._apply(PlacementDecided(decision))
        self._decide_from_s = (
            self._engine.now_s + took_s + max(DECIDE_GAP_S, DECIDE_DUTY_RATIO * took_s)
        )
        return float(took_s)

    def _next_tick(self) -> None:
        """Schedules a tick, if the passing of time can change anything."""
        state = self.machine.state
        if not (state.runs or state.recovering_until_s):
            return
        self._ticking = True
        waits = state.ready or state.recovering_until_s
        self._engine.after(self._fabric.tick_s if waits else QUIET_TICK_S, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        if self.alive:
            self.post(TimeAdvanced())

    # -- durable records -------------------------------------------------------------------------

    def _flush(self) -> None:
        """Writes ledgers, then the accounts that count them, as ``PeriodicFlush.write`` does."""
        store = self._fabric.store
        if store.down or self._fabric.bucket.epoch > self.epoch or self.outside.refused():
            return
        record = capture(self.machine.state, self._ledger.lengths(), self.now_s())
        self._ledger.flush_all()
        self._fabric.bucket.accounts = record

    def _save_model(self) -> None:
        if not self._fabric.store.down:
            self._fabric.bucket.model = encode_model(self.machine.state.model)

    def finish(self, uid: str) -> None:
        """Writes the ledger, then ``final``, as the control plane's ``RunFinalizer`` does."""
        if self._fabric.bucket.epoch > self.epoch:
            self.crash()  # a former leader notices the newer epoch before it writes
            return
        if uid not in self.machine.state.runs:
            return
        self._ledger.flush(uid)
        status = run_status(self.machine.state, uid, self.now_s())
        found = outputs_of(self.machine.state.runs[uid])
        self._fabric.bucket.outputs[uid] = tuple(a for given in found.values() for a in given)
        self._fabric.bucket.finals[uid] = status
        self._fabric.bucket.ended_by[uid] = self.epoch
        self._fabric.checker.finished(self, uid, status)
        self._fabric.ended(uid, status)
        self._ledger.close(uid)

    def _append(self, uid: str, line: Line) -> None:
        self._ledger.append(uid, line)
        self._fabric.checker.appended(self, uid, line)

    def submit(self, submitted: Submitted) -> None:
        """Accepts a run: its spec and pins are durable before the machine gets the event."""
        self._fabric.bucket.specs[submitted.uid] = submitted
        self.post(submitted)

    def assigned(self, command: Assign) -> None:
        """As :meth:`ExecutorOwner.assigned`."""
        self._fabric.checker.assigned(self, command)
        self._fabric.measures.assigned(self, command)

    def wrote(self, key: ActionKey, result: ActionResult) -> None:
        """As :meth:`ExecutorOwner.wrote`."""
        self._fabric.checker.wrote(self, key, result)

    def crash(self) -> None:
        """Stops at once; unflushed records are lost."""
        if not self.alive:
            return
        self.alive = False
        self._events.clear()
        self.gateway.close()
