"""Queries about single steps, bound to the machine's state; called by the API."""

from dataclasses import dataclass

from flowmesh_api.v1.why import Explanation, Why
from flowmesh_control.loop.clock import Clock
from flowmesh_control.queries.explain import explain_step
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.queries.why import why_step
from flowmesh_core.machine.state import State


@dataclass(frozen=True, slots=True)
class RunQueries:
    """Answers questions about single steps."""

    state: State
    views: RunViews
    clock: Clock

    async def why(self, uid: str, step: str) -> Why:
        """As :func:`why_step`."""
        return await why_step(self.state, self.views, uid, step)

    async def explain(self, uid: str, step: str) -> Explanation:
        """As :func:`explain_step`, at this moment."""
        return await explain_step(self.state, self.views, uid, step, self.clock())
