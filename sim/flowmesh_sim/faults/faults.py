"""Schedules and injects the faults of a scenario."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from flowmesh_core.protocol.messages import FailureReport
from flowmesh_sim.control.fabric import SimulatedFabric
from flowmesh_sim.control.provisioner import Provisioner
from flowmesh_sim.faults.store_faults import StoreFaults
from flowmesh_sim.faults.worker_faults import WorkerFaults
from flowmesh_sim.scenario import FaultSpec
from flowmesh_sim.workers.worker import SimWorker

HOUR_S = 3600.0
LEAD_CHECKED_S = 5.0
"""A former leader notices a newer one after at most this long (``lead_check_s``)."""
AMENDMENTS: tuple[dict[str, Any], ...] = (
    {"priority": 5},
    {"priority": -1},
    {"budgetNanousd": 500_000},
    {"suspend": True},
)


class Faults:
    """Schedules and injects faults.

    Attributes:
        struck: the number of faults so far.
    """

    def __init__(
        self, fabric: SimulatedFabric, provisioner: Provisioner, specs: Sequence[FaultSpec]
    ) -> None:
        """Schedules every fault of the scenario."""
        self._fabric = fabric
        self._provisioner = provisioner
        self._spoiling: list[tuple[float, str]] = []
        self._rng = fabric.dice.stream("faults")
        self._fleet = WorkerFaults(fabric, provisioner, self._rng)
        self.struck = 0
        fabric.measures.spoil = self._spoil
        self._by_kind: dict[str, Callable[[FaultSpec], None]] = {
            **StoreFaults(fabric, self._rng).by_kind,
            "partition": self._partition,
            "clock-step": self._clock_step,
            "control-crash": self._control_crash,
            "stale-leader": self._stale_leader,
            "engine-errors": self._engine_errors,
            "cancel": self._cancel,
            "amend": self._amend,
            "router-crash": self._router_crash,
        }
        for number, spec in enumerate(specs):
            if spec.at_s is not None:
                fabric.engine.at(spec.at_s, self.strike, spec)
            else:
                self._schedule(spec, fabric.dice.stream(f"fault {number}"))

    def _schedule(self, spec: FaultSpec, rng: Random) -> None:
        assert spec.per_hour is not None
        count = len(self._candidates(spec)) if spec.kind in self._fleet.by_kind else 1
        wait_s = rng.expovariate(spec.per_hour * max(1, count) / HOUR_S)

        def strike() -> None:
            self.strike(spec)
            self._schedule(spec, rng)

        self._fabric.engine.after(wait_s, strike)

    def strike(self, spec: FaultSpec) -> None:
        """Injects a fault now."""
        self.struck += 1
        now_s = self._fabric.engine.now_s
        if spec.kind in self._fleet.by_kind:
            found = self._candidates(spec)
            if not found:
                return
            if spec.busiest:
                worker = max(found, key=lambda w: (w.attempts, w.name))
            else:
                worker = self._rng.choice(found)
            self._fabric.trace.add(now_s, "fault", (spec.kind, worker.name))
            self._fleet.by_kind[spec.kind](spec, worker)
            return
        self._fabric.trace.add(now_s, "fault", (spec.kind, spec.for_s))
        self._by_kind[spec.kind](spec)

    def _candidates(self, spec: FaultSpec) -> list[SimWorker]:
        return [
            w
            for w in self._provisioner.living()
            if (not spec.pool or w.shape.pool == spec.pool)
            and (not spec.worker or w.name == spec.worker)
        ]

    def _partition(self, spec: FaultSpec) -> None:
        """Disconnects a share of the workers, at least one, from the control plane."""
        found = self._candidates(spec)
        count = max(1, round(spec.share * len(found)))
        for worker in self._rng.sample(found, k=min(count, len(found))):
            self._fleet.cut(spec, worker)

    # -- of the control plane --------------------------------------------------------------------

    def _clock_step(self, spec: FaultSpec) -> None:
        self._fabric.checker.clock_was_set()
        self._fabric.skew_s += spec.step_s

    def _control_crash(self, spec: FaultSpec) -> None:
        self._fabric.crash(spec.for_s)

    def _stale_leader(self, spec: FaultSpec) -> None:
        self._fabric.start_second_leader(min(spec.for_s, LEAD_CHECKED_S))

    # -- of users --------------------------------------------------------------------------------

    def _cancel(self, spec: FaultSpec) -> None:
        if self._fabric.open:
            self._fabric.cancel(self._rng.choice(sorted(self._fabric.open)))

    def _amend(self, spec: FaultSpec) -> None:
        """Amends a run; a suspended one is resumed after ``for_s``."""
        if not self._fabric.open:
            return
        uid = self._rng.choice(sorted(self._fabric.open))
        changes = self._rng.choice(AMENDMENTS)
        self._fabric.amend(uid, changes)
        if "suspend" in changes:
            self._fabric.engine.after(spec.for_s, self._resume, uid)

    def _resume(self, uid: str) -> None:
        """Resumes a run, and repeats it, since a control plane that has crashed does not answer."""
        control = self._fabric.control
        run = None if control is None else control.machine.state.runs.get(uid)
        if uid in self._fabric.open and (run is None or run.suspended):
            self._fabric.amend(uid, {"suspend": False})
            self._fabric.engine.after(1.0, self._resume, uid)

    def _router_crash(self, spec: FaultSpec) -> None:
        """Ends a router; another one starts after ``for_s``."""
        calls = self._fabric.calls
        running = [] if calls is None else [r for r in calls.routers if not r.is_lost]
        if calls is not None and running:
            calls.stop_router(self._rng.choice(running))
            self._fabric.engine.after(spec.for_s, calls.start_router)

    # -- of engines ------------------------------------------------------------------------------

    def _engine_errors(self, spec: FaultSpec) -> None:
        entry = (spec.share, spec.failure)
        self._spoiling.append(entry)
        self._fabric.engine.after(spec.for_s, self._spoiling.remove, entry)

    def _spoil(self, attempt_id: str) -> FailureReport | None:
        for share, kind in self._spoiling:
            if self._rng.random() < share:
                return FailureReport(kind, f"spoiled ({attempt_id[-8:]})")
        return None
