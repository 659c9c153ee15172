"""Records where and when every attempt ran, for the account of the gap to the bound."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowmesh_core.machine.commands import Assign
from flowmesh_core.machine.events import ActionKey, Event, WorkerSynced
from flowmesh_core.machine.state import parse_attempt_id
from flowmesh_sim.control.fabric import EPOCH_S
from flowmesh_sim.paper.observer import EvaluationObserver

if TYPE_CHECKING:
    from flowmesh_core.protocol.messages import Assignment, AttemptEnd
    from flowmesh_sim.control.control import SimulatedControlPlane

Span = tuple[float, float]
"""A begin and an end, in virtual seconds."""


@dataclass(frozen=True, slots=True)
class AttemptTimes:
    """An attempt that has ended.

    Attributes:
        fetching: its inputs; ``loading`` while it waited for its engine, and ``running``.
    """

    action: ActionKey
    worker: str
    succeeded: bool
    fetching: Span
    loading: Span
    running: Span


class PlacementObserver(EvaluationObserver):
    """An observer that also records every attempt.

    Attributes:
        attempts: those that have ended, by id.
        assignments: of all attempts, by id.
    """

    def __init__(self) -> None:
        super().__init__()
        self.attempts: dict[str, AttemptTimes] = {}
        self.assignments: dict[str, Assignment] = {}

    def assigned(self, control: "SimulatedControlPlane", c: Assign) -> None:
        """Records the assignment."""
        super().assigned(control, c)
        self.assignments[c.assignment.attempt_id] = c.assignment

    def applied(self, control: "SimulatedControlPlane", event: Event) -> None:
        """Records the attempts that have ended, as their worker reports them."""
        super().applied(control, event)
        if type(event) is WorkerSynced:
            for end in event.sync.ended:
                self.attempts.setdefault(end.attempt_id, _times(event.name, end))


def _times(worker: str, end: "AttemptEnd") -> AttemptTimes:
    usage = end.usage
    started_s, stored_s = end.started_s - EPOCH_S, end.ended_s - EPOCH_S
    fetched_s = started_s + usage.fetch_s
    ended_s = stored_s - usage.put_s
    return AttemptTimes(
        parse_attempt_id(end.attempt_id),
        worker,
        end.failure is None,
        (started_s, fetched_s),
        (fetched_s, fetched_s + usage.load_s),
        (ended_s - usage.run_s, ended_s),
    )
