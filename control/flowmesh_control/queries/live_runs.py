"""Runs that have not ended, as values; the operator compares them with its objects."""

from collections import ChainMap
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.queries.run_views import RunViews
from flowmesh_core.machine.state import State


@dataclass(frozen=True, slots=True)
class RunTerms:
    """The amendable terms of a run under way, and its size.

    Attributes:
        budget_nanousd: 0 for none.
        deadline_s: seconds after creation; 0 for none.
        steps: the number of steps in its plan.
    """

    suspended: bool
    priority: int
    budget_nanousd: int
    deadline_s: float
    steps: int


@dataclass(frozen=True, slots=True)
class LiveRuns:
    """Answers which runs have not ended, and their terms.

    Attributes:
        waiting: runs that cannot continue with the versions that they are pinned to.
    """

    state: State
    waiting: dict[str, RunStatus]
    views: RunViews

    def live_uids(self) -> Set[str]:
        """Returns the uids of all runs that have not ended, also those that wait for an engine.

        It is a live view, not a copy: use it before the next await.
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
