"""Asks hubs how far a request is, where a client asks, or spans are sent; else hubs say nothing."""

import asyncio
import math
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from flowmesh_core.protocol.serving import (
    STAGE_ENDED,
    STAGE_QUEUED,
    STAGE_RUNNING,
    AskStages,
    StageProgress,
    StageReport,
)
from flowmesh_serving.links.hub_link import Defect, HubLink

STATUS_MAX = 64
"""Questions of clients that may wait for hubs at once; those beyond get no answer."""
TRACES_MAX = 1024
"""Questions for spans, likewise."""
_WITHIN_S = 0.5
_STATES = frozenset({STAGE_QUEUED, STAGE_RUNNING, STAGE_ENDED})
_SECONDS_MAX = 1e6


class ReportedStage(NamedTuple):
    """What a hub has said of a stage.

    Attributes:
        progress: its word.
        heard_ns: when the router got it, in nanoseconds of Unix time.
    """

    progress: StageProgress
    heard_ns: int


@dataclass(slots=True, eq=False)
class StageQuestion:
    """A question, and what hubs have answered.

    Attributes:
        request_id: that is asked about.
        links: of the hubs that have not.
        stages: that may be answered.
        answered: whether all have, within half a second.
        found: by stage.
        timer: ends it then.
    """

    number: int
    request_id: str
    links: set[HubLink]
    stages: Collection[str]
    answered: asyncio.Future[bool]
    found: dict[str, ReportedStage] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None


class StageQuestions:
    """All questions of a router that wait for an answer."""

    def __init__(self) -> None:
        self._number = 0
        self._waiting: dict[int, StageQuestion] = {}
        self._of_clients: dict[str, StageQuestion] = {}

    def begin(
        self, request_id: str, links: Iterable[HubLink], stages: Collection[str]
    ) -> StageQuestion | None:
        """Asks hubs how far a request is, for spans; :meth:`answers` waits for what they say.

        Args:
            request_id: of a request, or of a call.
            links: of the hubs that have it.
            stages: that may be answered; others are dropped.

        Returns:
            The question; None where it is one too many, or a hub does not answer such.
        """
        if len(self._waiting) - len(self._of_clients) >= TRACES_MAX:
            return None
        return self._begin(request_id, set(links), stages)

    @staticmethod
    async def answers(question: StageQuestion) -> bool:
        """Waits for the answers; returns whether all hubs have answered within half a second."""
        return await asyncio.shield(question.answered)  # others may wait for it too

    async def ask(
        self, request_id: str, links: Iterable[HubLink], stages: Collection[str]
    ) -> dict[str, StageProgress] | None:
        """Returns how far a request is, for a client; arguments as of :meth:`begin`.

        Clients that ask about one request meanwhile get the same answer: hubs are asked once.

        Returns:
            By stage, what hubs said; a stage that has not begun is missing. None where not all
            have answered.
        """
        question = self._of_clients.get(request_id)
        if question is None:
            if len(self._of_clients) >= STATUS_MAX:
                return None
            question = self._begin(request_id, set(links), stages)
            if question is None:
                return None
            if not question.answered.done():
                self._of_clients[request_id] = question
        if not await self.answers(question):
            return None
        return {name: one.progress for name, one in question.found.items()}

    def reply(self, link: HubLink, report: StageReport) -> Defect:
        """Deals with a hub's answer; a late one is ignored."""
        question = self._waiting.get(report.number)
        if question is None or link not in question.links:
            return Defect.NOT_ITS_CALL
        if not all(map(_is_valid, report.stages)):
            return Defect.BREACH
        heard_ns = time.time_ns()
        for one in report.stages:
            if one.stage in question.stages:
                question.found[one.stage] = ReportedStage(one, heard_ns)
        self._answered(question, link)
        return Defect.NONE

    def lost(self, link: HubLink) -> None:
        """Waits for a hub no longer that is gone."""
        for question in list(self._waiting.values()):
            self._answered(question, link)

    def _begin(
        self, request_id: str, links: set[HubLink], stages: Collection[str]
    ) -> StageQuestion | None:
        if not all(one.reports_stages for one in links):
            return None
        loop = asyncio.get_running_loop()
        self._number += 1
        question = StageQuestion(self._number, request_id, links, stages, loop.create_future())
        if not links:
            question.answered.set_result(True)
            return question
        self._waiting[question.number] = question
        question.timer = loop.call_later(_WITHIN_S, self._end, question)
        for link in list(links):
            link.answer(AskStages(question.number, request_id))
        return question

    def _answered(self, question: StageQuestion, link: HubLink) -> None:
        question.links.discard(link)
        if not question.links:
            self._end(question, is_complete=True)

    def _end(self, question: StageQuestion, *, is_complete: bool = False) -> None:
        """Answers all that wait for a question."""
        assert question.timer is not None, "a question of no hub is not waiting"
        question.timer.cancel()
        question.answered.set_result(is_complete)
        del self._waiting[question.number]
        if self._of_clients.get(question.request_id) is question:
            del self._of_clients[question.request_id]


def _is_valid(progress: StageProgress) -> bool:
    """Returns whether a hub may say so: its word becomes a status and a span."""
    seconds = (progress.age_s, progress.queue_s, progress.compute_s)
    return progress.state in _STATES and all(
        math.isfinite(each_s) and 0 <= each_s <= _SECONDS_MAX for each_s in seconds
    )
