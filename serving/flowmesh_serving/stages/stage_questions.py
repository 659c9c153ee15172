"""Asks hubs how far a request is, when somebody asks the router: no request says so by itself."""

import asyncio
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from flowmesh_core.protocol.serving import (
    STAGE_ENDED,
    STAGE_QUEUED,
    STAGE_RUNNING,
    AskStages,
    StageProgress,
    StageReport,
)
from flowmesh_serving.links.hub_link import Defect, HubLink

QUESTIONS_MAX = 64
"""Questions that wait for hubs at once; whoever asks beyond that gets no answer."""
_WITHIN_S = 0.5
_STATES = frozenset({STAGE_QUEUED, STAGE_RUNNING, STAGE_ENDED})
_SECONDS_MAX = 1e6


@dataclass(slots=True, eq=False)
class _Question:
    """A question, and what hubs have answered.

    Attributes:
        links: of the hubs that have not.
        stages: that may be answered.
    """

    links: set[HubLink]
    stages: Collection[str]
    answered: asyncio.Future[None]
    found: dict[str, StageProgress] = field(default_factory=dict)


class StageQuestions:
    """All questions of a router that wait for an answer."""

    def __init__(self) -> None:
        self._number = 0
        self._waiting: dict[int, _Question] = {}

    async def ask(
        self, request_id: str, links: Iterable[HubLink], stages: Collection[str]
    ) -> dict[str, StageProgress] | None:
        """Asks hubs how far a request is.

        Args:
            request_id: of a request, or of a call.
            links: of the hubs that have it.
            stages: that may be answered; others are dropped.

        Returns:
            By stage, what hubs said within half a second; a stage that has not begun is missing.
            None where not all have answered.
        """
        asked = set(links)
        if len(self._waiting) >= QUESTIONS_MAX or not all(one.reports_stages for one in asked):
            return None
        self._number += 1
        number, loop = self._number, asyncio.get_running_loop()
        question = self._waiting[number] = _Question(asked, stages, loop.create_future())
        try:
            for link in list(asked):
                link.answer(AskStages(number, request_id))
            if asked:
                async with asyncio.timeout(_WITHIN_S):
                    await question.answered
        except TimeoutError:
            return None
        finally:
            del self._waiting[number]
        return question.found

    def reply(self, link: HubLink, report: StageReport) -> Defect:
        """Deals with a hub's answer; a late one is ignored."""
        question = self._waiting.get(report.number)
        if question is None or link not in question.links:
            return Defect.NOT_ITS_CALL
        if not all(map(_is_valid, report.stages)):
            return Defect.BREACH
        question.found |= {one.stage: one for one in report.stages if one.stage in question.stages}
        self._answered(question, link)
        return Defect.NONE

    def lost(self, link: HubLink) -> None:
        """Waits for a hub no longer that is gone."""
        for question in self._waiting.values():
            self._answered(question, link)

    @staticmethod
    def _answered(question: _Question, link: HubLink) -> None:
        question.links.discard(link)
        if not question.links and not question.answered.done():
            question.answered.set_result(None)


def _is_valid(progress: StageProgress) -> bool:
    """Returns whether a hub may say so: its word becomes a status and a span."""
    seconds = (progress.age_s, progress.queue_s, progress.compute_s)
    return progress.state in _STATES and all(
        math.isfinite(each_s) and 0 <= each_s <= _SECONDS_MAX for each_s in seconds
    )
