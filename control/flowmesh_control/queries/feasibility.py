"""Refuses workflows whose forecast exceeds their budget or deadline, before they are accepted."""

from dataclasses import dataclass

from flowmesh_control.queries.planner import Planner, refuse_unmeetable
from flowmesh_control.runs.admission import Admission, Submission


@dataclass(frozen=True, slots=True)
class FeasibilityCheck:
    """Asks the planner about a submission; called by the API and by the operator."""

    admission: Admission
    planner: Planner

    async def check(self, submission: Submission) -> None:
        """Forecasts a workflow, and accepts nothing.

        Raises:
            PlanRefusedError: its budget or deadline cannot be met; with the figures.
            SpecError: it is invalid; lists every problem.
            InvalidReferenceError: it refers to content that the namespace may not read.
        """
        compiled = await self.admission.compile(submission)
        refuse_unmeetable(await self.planner.forecast(compiled))
