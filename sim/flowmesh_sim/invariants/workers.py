"""Checks workers: none is leaked, and the control plane and the workers agree on attempts."""

from typing import TYPE_CHECKING

from flowmesh_core.worker_agent.instructions import Instruction
from flowmesh_core.worker_agent.invariants import check_agent
from flowmesh_core.worker_agent.machine import WorkerAgent
from flowmesh_core.worker_agent.reports import REPEAT_ENDS_EVERY_S
from flowmesh_sim.kernel.network import LATE_S
from flowmesh_sim.kernel.violation import violated
from flowmesh_sim.workers.connection import BACKOFF_MAX_S

if TYPE_CHECKING:
    from flowmesh_core.machine.state import State
    from flowmesh_sim.control.control import SimulatedControlPlane
    from flowmesh_sim.control.provisioner import Provisioner
    from flowmesh_sim.workers.worker import SimWorker

SOON_S = 2 * REPEAT_ENDS_EVERY_S + 4 * BACKOFF_MAX_S
"""With a working network, a worker and the control plane agree after this long."""


class WorkerInvariants:
    """Tracks since when each worker and the control plane have disagreed."""

    def __init__(self) -> None:
        self._since_s: dict[tuple[str, str], float] = {}
        self._changed: dict[WorkerAgent, None] = {}
        self._epoch = 0
        self._checked_s = 0.0

    def agent_applied(self, agent: WorkerAgent, done: list[Instruction]) -> None:
        """After every event of a worker agent, which is looked at with the rest of the state."""
        self._changed[agent] = None
        if agent.reports.draining:
            check_agent(agent, done)

    def look_at_agents(self) -> None:
        """The agents' own invariants, of those with an event since the last look."""
        for agent in self._changed:
            check_agent(agent)
        self._changed.clear()

    def observe(self, control: "SimulatedControlPlane", provisioner: "Provisioner") -> None:
        """Checks once a second the sizes of pools and both sides of every connection."""
        now_s = control.virtual_s
        if control.epoch != self._epoch:
            self._epoch = control.epoch
            self._since_s.clear()
        elif now_s < self._checked_s + 1.0:
            return
        self._checked_s = now_s
        for pool in provisioner.pools:
            living = sum(not w.draining for w in pool.workers.values()) + pool.coming
            most = max(pool.spec.maximum, pool.spec.workers)
            if living > most:
                violated(f"pool {pool.spec.name}", f"has {living} workers of at most {most}")
        self._check_ended(control, provisioner, now_s)
        for worker in provisioner.living():
            self._check_worker(control, worker, now_s)

    def _check_ended(
        self, control: "SimulatedControlPlane", provisioner: "Provisioner", now_s: float
    ) -> None:
        """Checks that the control plane drops workers whose processes have ended."""
        running = {w.name for w in provisioner.living()}
        for name in control.machine.state.workers:
            ended = name not in running
            if self._lasts(("ghost", name), ended, now_s) > control.patience_s + SOON_S:
                violated(f"worker {name}", "has ended, and the control plane still counts on it")

    def _check_worker(
        self, control: "SimulatedControlPlane", worker: "SimWorker", now_s: float
    ) -> None:
        state, link = control.machine.state, worker.connection.link
        reports = worker.agent.reports
        whole = link.up and not (link.twice or link.overtaken)
        whole = whole and max(link.held_until_s.values()) + LATE_S < now_s
        known = worker.name in state.workers
        if self._lasts(("unknown", worker.name), whole and not known, now_s) > SOON_S:
            violated(f"worker {worker.name}", "lives, and the control plane does not know it")
        for attempt_id in reports.progress if whole else ():
            attempt = state.attempts.get(attempt_id)
            idle = attempt.cancelled if attempt else not _waits(state, attempt_id)
            if self._lasts(("idle", attempt_id), idle, now_s) > SOON_S:
                violated(f"worker {worker.name}", f"works on {attempt_id} for nobody")
        for attempt_id in reports.ended if whole else ():
            stale = attempt_id not in state.attempts and not _waits(state, attempt_id)
            if self._lasts(("stale", attempt_id), stale, now_s) > SOON_S:
                violated(f"worker {worker.name}", f"keeps {attempt_id} for nobody")
        known_worker = state.workers.get(worker.name) if whole else None
        for attempt_id in known_worker.attempts if known_worker else ():
            unknown = not reports.knows(attempt_id)
            if self._lasts(("untold", attempt_id), unknown, now_s) > SOON_S:
                violated(f"worker {worker.name}", f"was never told of {attempt_id}")

    def _lasts(self, what: tuple[str, str], holds: bool, now_s: float) -> float:
        """Returns for how long a condition has been true, in seconds."""
        if not holds:
            self._since_s.pop(what, None)
            return 0.0
        return now_s - self._since_s.setdefault(what, now_s)


def _waits(state: "State", attempt_id: str) -> bool:
    """Whether the attempt is orphaned and waits for its action, as after a restart."""
    assigned = any(o.attempt_id == attempt_id for o in state.orphaned_attempts.values())
    return assigned or any(o.end.attempt_id == attempt_id for o in state.orphaned_ends.values())
