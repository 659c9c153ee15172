"""What each stage of a request has taken: asks its hubs, for its status and for spans.

Only where spans are sent, or the router keeps the times of stages. A hub is asked before it is told
that the request has ended, so that it still knows; the request does not wait for the answer.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from flowmesh_serving.call_spans import CallSpans, StagedCall, StageSpan
from flowmesh_serving.requests.call_record import stage_records
from flowmesh_serving.requests.request_record import RequestRecord
from flowmesh_serving.stages.stage_questions import StageQuestion, StageQuestions
from flowmesh_serving.stages.staged_requests import PendingRequest


class StageTraces:
    """Completes the record of each request, and makes spans of it and its stages."""

    def __init__(self, spans: CallSpans | None, questions: StageQuestions) -> None:
        """Asks by ``questions``; ``spans`` is None where none are sent."""
        self._spans = spans
        self._questions = questions
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, pending: PendingRequest) -> "StageTrace":
        """Asks the hubs of a request that is about to end."""
        question = self._questions.begin(
            pending.request_id, pending.links.values(), pending.graph.stages
        )
        return StageTrace(self, pending, question)

    def record(self, trace: "StageTrace", call: StagedCall, headers: Mapping[str, str]) -> None:
        """Completes the record of a request and sends its spans, once its hubs have answered."""
        task = asyncio.get_running_loop().create_task(self._record(trace, call, headers))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _record(
        self, trace: "StageTrace", call: StagedCall, headers: Mapping[str, str]
    ) -> None:
        stages: list[StageSpan] = []
        if trace.question is not None:
            await self._questions.answers(trace.question)
            stages = [
                StageSpan(one.progress, one.heard_ns, call.components[name], call.workers[name])
                for name, one in trace.question.found.items()
            ]
        said = {one.progress.stage: one.progress for one in stages}
        trace.ended.calls = stage_records(trace.pending.run.route, said)
        if self._spans is not None:
            self._spans.record_stages(call, headers, stages)


@dataclass(slots=True)
class StageTrace:
    """A request whose hubs have been asked.

    Attributes:
        ended: its record, once it has ended.
    """

    traces: StageTraces
    pending: PendingRequest
    question: StageQuestion | None
    ended: RequestRecord = field(init=False)

    def end(self, record: RequestRecord, headers: Mapping[str, str], took_s: float) -> None:
        """Completes the record of the request, which has ended now, and sends its spans.

        Args:
            record: of the request.
            headers: of the request, by name in any case.
            took_s: seconds since it came.
        """
        self.ended = record
        self.pending.trace = None  # else they keep each other, and the body
        run, graph = self.pending.run, self.pending.graph
        call = StagedCall(
            request_id=run.request_id,
            path=record.path,
            service=self.pending.service,
            tenant=run.tenant,
            outcome=record.outcome,
            took_s=took_s,
            ended_ns=time.time_ns(),
            components={n: s.stage.component for n, s in graph.stages.items()},
            workers={place.stage: place.worker for place in run.route.stages},
        )
        self.traces.record(self, call, headers)
