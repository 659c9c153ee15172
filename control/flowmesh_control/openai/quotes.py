"""Plans batches: what a file of requests would cost and take, before it is a batch."""

from collections.abc import Mapping
from dataclasses import dataclass

from flowmesh_api.openai.batches import BatchPlan, BatchQuote, PlanBatchBody
from flowmesh_api.v1.plan import Forecast
from flowmesh_control.openai.batches import BatchService, require_endpoint
from flowmesh_control.openai.records import BatchRecord
from flowmesh_control.queries.planner import Planner
from flowmesh_control.runs.admission import Admission, Submission

WINDOWS: Mapping[str, float] = {"1h": 3_600.0, "24h": 86_400.0}
"""The completion windows that are quoted besides ``now``, in seconds."""
NOW = "now"
_PLANNED = "batch-plan"


@dataclass(frozen=True, slots=True)
class BatchQuotes:
    """Plans batches.

    Attributes:
        batches: reads files.
        admission: compiles a batch's workflow.
        planner: forecasts it.
    """

    batches: BatchService
    admission: Admission
    planner: Planner

    async def plan(
        self, namespace: str, labels: Mapping[str, str], scope: str, body: PlanBatchBody
    ) -> BatchPlan:
        """Returns the forecast of a file's requests, and whether it meets usual windows.

        Args:
            namespace: of the user.
            labels: of the namespace.
            scope: the namespace's own.
            body: the request.

        Raises:
            OpenAiError: the file cannot be a batch, or the namespace has no such file.
            SpecError: the batch's workflow would be refused.
        """
        require_endpoint(body.endpoint)
        planned = BatchRecord(
            id=_PLANNED,
            namespace=namespace,
            uid=_PLANNED,
            endpoint=body.endpoint,
            file_id=body.input_file_id,
            window="24h",
            created_s=0.0,
            scope=scope,
        )
        found, document = await self.batches.plan(planned)
        compiled = await self.admission.compile(
            Submission(document, namespace=namespace, labels=labels)
        )
        forecast = await self.planner.forecast(compiled)
        return BatchPlan(
            input_file_id=body.input_file_id,
            endpoint=body.endpoint,
            requests=len(found.custom_ids),
            wrong=len(found.wrong),
            forecast=forecast,
            quotes=_quotes(forecast),
        )


def _quotes(forecast: Forecast) -> tuple[BatchQuote, ...]:
    """Returns a quote for a start at once, and one for each window."""
    longest_s = forecast.seconds * (1 + forecast.error)
    now = BatchQuote(NOW, forecast.nanousd, forecast.seconds, is_met=True)
    return (
        now,
        *(
            BatchQuote(name, forecast.nanousd, forecast.seconds, is_met=longest_s <= window_s)
            for name, window_s in WINDOWS.items()
        ),
    )
