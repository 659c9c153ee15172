"""The spans of requests to services with stages: asks their hubs what each stage has taken.

Only where spans are sent. A hub is asked before it is told that the request has ended, so that it
still knows; the request does not wait for the answer.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from flowmesh_serving.call_spans import CallSpans, StagedCall, StageSpan
from flowmesh_serving.stages.stage_questions import TRACES_MAX, StageQuestion, StageQuestions
from flowmesh_serving.stages.staged_requests import PendingRequest


class StageTraces:
    """Makes a span of each request, with one for each of its stages."""

    def __init__(self, spans: CallSpans, questions: StageQuestions) -> None:
        self._spans = spans
        self._questions = questions
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, pending: PendingRequest) -> "StageTrace":
        """Asks the hubs of a request that is about to end."""
        question = self._questions.begin(
            pending.request_id, pending.links.values(), pending.graph.stages, TRACES_MAX
        )
        return StageTrace(self, pending, question)

    def record(
        self, call: StagedCall, headers: Mapping[str, str], question: StageQuestion | None
    ) -> None:
        """Sends the spans of a request, once its hubs have answered."""
        task = asyncio.get_running_loop().create_task(self._record(call, headers, question))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _record(
        self, call: StagedCall, headers: Mapping[str, str], question: StageQuestion | None
    ) -> None:
        stages: list[StageSpan] = []
        if question is not None:
            await self._questions.answers(question)
            stages = [
                StageSpan(one.progress, one.heard_ns, call.components[name], call.workers[name])
                for name, one in question.found.items()
            ]
        self._spans.record_stages(call, headers, stages)


@dataclass(slots=True)
class StageTrace:
    """A request whose hubs have been asked."""

    traces: StageTraces
    pending: PendingRequest
    question: StageQuestion | None

    def end(self, path: str, headers: Mapping[str, str], outcome: str, took_s: float) -> None:
        """Sends the spans of the request, which has ended now.

        Args:
            path: that it was sent to.
            headers: of the request, by name in any case.
            outcome: as the router's metrics count it.
            took_s: seconds since it came.
        """
        run, graph = self.pending.run, self.pending.graph
        call = StagedCall(
            request_id=run.request_id,
            path=path,
            service=self.pending.service,
            tenant=run.tenant,
            outcome=outcome,
            took_s=took_s,
            ended_ns=time.time_ns(),
            components={n: s.stage.component for n, s in graph.stages.items()},
            workers={place.stage: place.worker for place in run.route.stages},
        )
        self.traces.record(call, headers, self.question)
