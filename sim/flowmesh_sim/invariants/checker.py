"""Checks the invariants of a simulation during its run and at its end, under all faults.

This module decides when to check. The invariants are in modules of their own: receipts and statuses
(``money``), actions and devices (``work``), workers (``workers``), shares of tenants
(``fairness``), dispatch, publication and collection (``guarantees``).
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from flowmesh_api.v1.runs import RunStatus
from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.machine.commands import Assign
from flowmesh_core.machine.events import ActionKey, Event
from flowmesh_core.protocol.results import ActionResult
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent.instructions import Instruction
from flowmesh_core.worker_agent.machine import WorkerAgent
from flowmesh_sim.invariants.fairness import FairnessInvariants
from flowmesh_sim.invariants.guarantees import ActionInvariants
from flowmesh_sim.invariants.money import MoneyInvariants
from flowmesh_sim.invariants.work import look_at_actions, look_at_memory, look_at_runs
from flowmesh_sim.invariants.workers import WorkerInvariants
from flowmesh_sim.kernel.violation import violated
from flowmesh_sim.models.store import Key
from flowmesh_sim.policies.shipped import Shipped

if TYPE_CHECKING:
    from flowmesh_sim.control.control import SimulatedControlPlane
    from flowmesh_sim.control.fabric import SimulatedFabric
    from flowmesh_sim.control.provisioner import Provisioner

OBJECTS_PER_EVENT = 16
"""Checking this many objects costs about as much as one event."""


class Checker:
    """Raises at the first violated invariant.

    Attributes:
        checks: how often the whole state was checked.
    """

    def __init__(self, every: int | None = None) -> None:
        """Creates a checker.

        Args:
            every: events between two checks of the whole state; None adapts to the state's size (a
                small state is checked after every event), so that checks cost about as much as
                events.
        """
        self._every = every
        self._due = 1
        self.checks = 0
        self._books = MoneyInvariants()
        self._fleet = WorkerInvariants()
        self._shares = FairnessInvariants()
        self._promises = ActionInvariants()
        self.provisioner: Provisioner | None = None

    def began(self, control: "SimulatedControlPlane") -> None:
        """Called when an epoch begins."""
        self._shares.began(control)

    # -- during the simulation -------------------------------------------------------------------

    def applied(self, control: "SimulatedControlPlane", event: Event) -> None:
        """Called after every event."""
        self._books.applied(control, event)
        self._due -= 1
        if self._due <= 0:
            self.check(control)

    def agent_applied(self, agent: WorkerAgent, done: list[Instruction]) -> None:
        """After every event of a worker agent."""
        self._fleet.agent_applied(agent, done)

    def check(self, control: "SimulatedControlPlane") -> None:
        """Checks the whole state."""
        self.checks += 1
        state = control.machine.state
        size = len(state.actions) + 4 * len(state.attempts) + 4 * len(state.workers)
        size += sum(len(run.steps) for run in state.runs.values())
        self._due = self._every or 1 + size // OBJECTS_PER_EVENT
        self._books.observe(control)
        look_at_runs(state)
        look_at_actions(state)
        look_at_memory(state)
        self._shares.observe(control)
        self._fleet.look_at_agents()
        if self.provisioner is not None:
            self._fleet.observe(control, self.provisioner)

    def decided(
        self, control: "SimulatedControlPlane", snapshot: Snapshot, decision: Decision
    ) -> None:
        """Called at every decision, before it is applied."""
        if control.policy is Shipped:
            self._shares.decided(snapshot, decision)

    def appended(self, control: "SimulatedControlPlane", uid: str, line: Line) -> None:
        """Called at every line of a ledger."""
        self._shares.appended(control, uid, line)

    def assigned(self, control: "SimulatedControlPlane", c: Assign) -> None:
        """Called at every dispatch."""
        self._promises.assigned(control, c)

    def wrote(self, control: "SimulatedControlPlane", key: ActionKey, result: ActionResult) -> None:
        """Called at every successful publication."""
        self._promises.wrote(control, key, result)

    def unreadable(self, places: Collection[Key]) -> None:
        """Called when results were deleted or damaged."""
        self._promises.unreadable(places)

    def collected(self, fabric: "SimulatedFabric", swept: Collection[Digest]) -> None:
        """Called after every garbage collection."""
        self._promises.collected(fabric, swept)

    def finished(self, control: "SimulatedControlPlane", uid: str, status: RunStatus) -> None:
        """Called when a run was finalized."""
        self._books.finished(control, uid, status)

    def clock_was_set(self) -> None:
        """Called when the wall clock stepped: durations by it are not valid any more."""
        self._books.clock_was_set()
        self._shares.clock_was_set()

    # -- at the end ------------------------------------------------------------------------------

    def at_end(self, fabric: "SimulatedFabric", *, limit_s: float) -> None:
        """Called at the end of the simulation."""
        lost = sorted(fabric.open)
        if lost:
            violated(
                f"runs {', '.join(lost[:5])}",
                f"have not ended after {limit_s:g} s: {_story(fabric)}",
            )
        if fabric.control is not None:
            self.check(fabric.control)
            self._books.at_end(fabric, fabric.control)


def _story(fabric: "SimulatedFabric") -> str:
    if fabric.control is None:
        return "there is no leader"
    state = fabric.control.machine.state
    steps = [
        f"{uid} {path} {s.state} {s.wait_reason} left={s.pending_parts} {run.unsettled=}"
        for uid, run in state.runs.items()
        for path, s in run.steps.items()
        if not s.ended
    ]
    return f"{len(state.workers)} workers; " + "; ".join(steps[:10])
