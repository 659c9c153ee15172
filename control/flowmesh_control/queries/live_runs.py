"""Runs that have not ended, as values: for those who compare them with what was asked for."""

from collections import ChainMap
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.queries.run_views import RunViews
from flowmesh_core.machine.state import State


@dataclass(frozen=True, slots=True)
class RunTerms:
    """What may be amended of a run that is under way, and its size.

    Attributes:
        budget_nanousd: 0 where there is none.
        deadline_s: after creation; 0 where there is none.
        steps: how many its plan has.
    """

    suspended: bool
    priority: int
    budget_nanousd: int
    deadline_s: float
    steps: int


@dataclass(frozen=True, slots=True)
class LiveRuns:
    """Answers which runs go on, and under which terms.

    Attributes:
        waiting: runs that cannot be taken up as they are pinned.
    """

    state: State
    waiting: dict[str, RunStatus]
    views: RunViews

    def live_uids(self) -> Set[str]:
        """Returns the uids of all runs that have not ended, those that wait for an engine too.

        To be used at once: it shows later what holds then. Nothing is copied for one question.
        """
        return ChainMap[str, Any](self.waiting, self.state.runs).keys()

    async def status(self, uid: str) -> RunStatus:
        """Returns a run's status, live or ended.

        Raises:
            NotFoundError: there is no such run.
        """
        return await self.views.status(uid)

    def terms(self, uid: str) -> RunTerms | None:
        """Returns the terms of a run under way; None where it waits for an engine or has ended."""
        run = self.state.runs.get(uid)
        if run is None:
            return None
        return RunTerms(
            run.suspended, run.priority, run.budget_nanousd, run.deadline_s, len(run.steps)
        )
