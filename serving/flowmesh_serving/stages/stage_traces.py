"""What each stage of a request has taken: asks its hubs, for its status and for spans.

Only where spans are sent, or the router keeps the times of stages. A hub is asked before it is told
that the request has ended, so that it still knows; the request does not wait for the answer. Where
no spans are sent, hubs are asked for at most ``ASKED_PER_S`` requests a second: a question costs a
short request as much as one of its hops.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from flowmesh_serving.call_spans import CallSpans, StagedCall, StageSpan
from flowmesh_serving.rate_limiter import RateLimiter
from flowmesh_serving.requests.call_record import stage_records
from flowmesh_serving.requests.request_record import RequestRecord
from flowmesh_serving.stages.stage_questions import (
    ReportedStage,
    StageQuestion,
    StageQuestions,
)
from flowmesh_serving.stages.staged_requests import PendingRequest

ASKED_PER_S = 100.0


class StageTraces:
    """Completes the record of each request, and makes spans of it and its stages."""

    def __init__(
        self,
        spans: CallSpans | None,
        questions: StageQuestions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Asks nothing yet.

        Args:
            spans: sends them; None where none are sent.
            questions: asks hubs.
            clock: seconds that never go back.
        """
        self._spans = spans
        self._questions = questions
        self._clock = clock
        self._may_ask = RateLimiter(ASKED_PER_S, clock())
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, pending: PendingRequest) -> "StageTrace":
        """Asks the hubs of a request that is about to end, unless too many have just ended."""
        now_s = self._clock()
        if self._spans is None and not self._may_ask.take(now_s, ASKED_PER_S, ASKED_PER_S):
            return StageTrace(self, pending, None)
        question = self._questions.begin(
            pending.request_id, pending.links.values(), pending.graph.stages
        )
        return StageTrace(self, pending, question)

    def record(self, trace: "StageTrace", ended: "EndedRequest") -> None:
        """Completes the record of a request and sends its spans, once its hubs have answered."""
        if trace.question is None:
            self._complete(trace, ended, {})
            return
        task = asyncio.get_running_loop().create_task(
            self._complete_with_answers(trace, trace.question, ended)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _complete_with_answers(
        self, trace: "StageTrace", question: StageQuestion, ended: "EndedRequest"
    ) -> None:
        await self._questions.answers(question)
        self._complete(trace, ended, question.found)

    def _complete(
        self, trace: "StageTrace", ended: "EndedRequest", found: Mapping[str, ReportedStage]
    ) -> None:
        said = {name: one.progress for name, one in found.items()}
        ended.record.calls = stage_records(trace.pending.run.route, said)
        if self._spans is not None:
            call = _staged_call(trace.pending, ended)
            stages = [
                StageSpan(one.progress, one.heard_ns, call.components[name], call.workers[name])
                for name, one in found.items()
            ]
            self._spans.record_stages(call, ended.headers, stages)


class EndedRequest(NamedTuple):
    """A request that has ended.

    Attributes:
        headers: by name in any case.
        took_s: seconds since it came.
        ended_ns: Unix time in nanoseconds.
    """

    record: RequestRecord
    headers: Mapping[str, str]
    took_s: float
    ended_ns: int


@dataclass(frozen=True, slots=True)
class StageTrace:
    """A request whose hubs have been asked, if any were."""

    traces: StageTraces
    pending: PendingRequest
    question: StageQuestion | None

    def end(self, record: RequestRecord, headers: Mapping[str, str], took_s: float) -> None:
        """Completes the record of the request, which has ended now, and sends its spans.

        Args:
            record: of the request.
            headers: of the request, by name in any case.
            took_s: seconds since it came.
        """
        self.pending.trace = None  # else they keep each other, and the body
        self.traces.record(self, EndedRequest(record, headers, took_s, time.time_ns()))


def _staged_call(pending: PendingRequest, ended: EndedRequest) -> StagedCall:
    run, graph = pending.run, pending.graph
    return StagedCall(
        request_id=run.request_id,
        path=ended.record.path,
        service=pending.service,
        tenant=run.tenant,
        outcome=ended.record.outcome,
        took_s=ended.took_s,
        ended_ns=ended.ended_ns,
        components={n: s.stage.component for n, s in graph.stages.items()},
        workers={place.stage: place.worker for place in run.route.stages},
    )
