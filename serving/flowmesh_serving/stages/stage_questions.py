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
        links: of the hubs that have not.
        stages: that may be answered.
        found: by stage.
    """

    number: int
    links: set[HubLink]
    stages: Collection[str]
    answered: asyncio.Future[None]
    found: dict[str, ReportedStage] = field(default_factory=dict)


class StageQuestions:
    """All questions of a router that wait for an answer."""

    def __init__(self) -> None:
        self._number = 0
        self._waiting: dict[int, StageQuestion] = {}

    def begin(
        self, request_id: str, links: Iterable[HubLink], stages: Collection[str], most: int
    ) -> StageQuestion | None:
        """Asks hubs how far a request is; :meth:`answers` waits for what they say.

        Args:
            request_id: of a request, or of a call.
            links: of the hubs that have it.
            stages: that may be answered; others are dropped.
            most: questions that may wait at once.

        Returns:
            The question; None where it is one too many, or a hub does not answer such.
        """
        asked = set(links)
        if len(self._waiting) >= most or not all(one.reports_stages for one in asked):
            return None
        self._number += 1
        answered = asyncio.get_running_loop().create_future()
        question = StageQuestion(self._number, asked, stages, answered)
        self._waiting[question.number] = question
        for link in list(asked):
            link.answer(AskStages(question.number, request_id))
        return question

    async def answers(self, question: StageQuestion) -> bool:
        """Waits for the answers; returns whether all hubs have answered within half a second."""
        try:
            if question.links:
                async with asyncio.timeout(_WITHIN_S):
                    await question.answered
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(question.number, None)
        return True

    async def ask(
        self, request_id: str, links: Iterable[HubLink], stages: Collection[str]
    ) -> dict[str, StageProgress] | None:
        """Returns how far a request is, for a client; arguments as of :meth:`begin`.

        Returns:
            By stage, what hubs said; a stage that has not begun is missing. None where not all
            have answered.
        """
        question = self.begin(request_id, links, stages, STATUS_MAX)
        if question is None or not await self.answers(question):
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
        for question in self._waiting.values():
            self._answered(question, link)

    @staticmethod
    def _answered(question: StageQuestion, link: HubLink) -> None:
        question.links.discard(link)
        if not question.links and not question.answered.done():
            question.answered.set_result(None)


def _is_valid(progress: StageProgress) -> bool:
    """Returns whether a hub may say so: its word becomes a status and a span."""
    seconds = (progress.age_s, progress.queue_s, progress.compute_s)
    return progress.state in _STATES and all(
        math.isfinite(each_s) and 0 <= each_s <= _SECONDS_MAX for each_s in seconds
    )
