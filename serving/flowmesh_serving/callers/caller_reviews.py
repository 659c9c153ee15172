"""The control plane's answers about Kubernetes' tokens, each held for a short time.

A router asks once about a token that it does not know. It goes on with an answer for seconds, asks
again in the background before these have passed, and goes on for a minute where no control plane
answers, as while another one starts to lead.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, Protocol

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.protocol.caller_review import CallerReview
from flowmesh_core.protocol.router_services import token_hash
from flowmesh_serving.callers.review_rate import ReviewRate
from flowmesh_serving.errors import caller_not_reviewed, too_many_unknown_tokens

ALLOWED_S = 10.0
"""How long the right to call is believed; the control plane believes it for as long again."""
REFRESH_S = 5.0
"""After which a request that uses an answer has it asked for again."""
UNKNOWN_S = 10.0
"""How long a token that is not valid is refused unasked."""
NO_RIGHT_S = 2.0
"""As above, of a user without the right: one that was just granted should take effect soon."""
AWAY_S = 60.0
"""How long the right to call is believed while no control plane answers."""
ANSWERS_MAX = 4096
_Key = tuple[str, str]


class CallerReviewer(Protocol):
    """Reviews tokens; ``control_client.ControlClient`` implements it."""

    async def review(self, token: str, namespace: str) -> CallerReview:
        """Returns whether a token's user may call the services of a namespace.

        Raises:
            FlowMeshError: the control plane does not answer.
        """
        ...


class _Answer(NamedTuple):
    review: CallerReview
    at_s: float


class CallerReviews:
    """Answers by token and namespace; tokens are held as hashes."""

    def __init__(
        self, reviewer: CallerReviewer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Starts without answers.

        Args:
            reviewer: the control plane.
            clock: seconds that never go back.
        """
        self._reviewer = reviewer
        self._clock = clock
        self._rate = ReviewRate(clock)
        self._answers: OrderedDict[_Key, _Answer] = OrderedDict()
        self._questions: dict[_Key, asyncio.Task[CallerReview]] = {}
        self._is_away = False

    def __len__(self) -> int:
        """Returns the number of answers, expired ones too."""
        return len(self._answers)

    async def get(self, token: str, namespace: str, peer: str) -> CallerReview:
        """Returns whether a token's user may call the services of a namespace.

        Args:
            token: of Kubernetes.
            namespace: empty for the user's own.
            peer: the address of the client.

        Raises:
            OpenAiError: too many unknown tokens were asked about, or no control plane answers.
        """
        key = (token_hash(token), namespace)
        held = self._answers.get(key)
        if held is not None and (review := self._believed(key, held, token)) is not None:
            return review
        question = self._questions.get(key)
        if question is None:
            is_known = held is not None and held.review.may_call
            if not is_known and not self._rate.take(peer):
                raise too_many_unknown_tokens()
            question = self._ask(key, token)
        try:
            # A client that leaves does not end the question of others.
            return await asyncio.shield(question)
        except FlowMeshError as error:
            if held is not None and held.review.may_call and self._age_s(held) < AWAY_S:
                return held.review
            raise caller_not_reviewed() from error

    def _believed(self, key: _Key, held: _Answer, token: str) -> CallerReview | None:
        """Returns an answer that needs no other one; None where it is too old."""
        age_s, review = self._age_s(held), held.review
        if review.may_call:
            within_s = AWAY_S if self._is_away else ALLOWED_S
        else:
            within_s = NO_RIGHT_S if review.user else UNKNOWN_S
        if age_s >= within_s:
            return None
        self._answers.move_to_end(key)
        if review.may_call and age_s >= REFRESH_S and key not in self._questions:
            self._ask(key, token)
        return review

    def _age_s(self, held: _Answer) -> float:
        return self._clock() - held.at_s

    def _ask(self, key: _Key, token: str) -> "asyncio.Task[CallerReview]":
        question = asyncio.get_running_loop().create_task(self._answer(key, token))
        self._questions[key] = question
        question.add_done_callback(lambda task: self._on_answered(key, task))
        return question

    async def _answer(self, key: _Key, token: str) -> CallerReview:
        at_s = self._clock()
        try:
            review = await self._reviewer.review(token, key[1])
        except FlowMeshError:
            self._is_away = True
            raise
        self._is_away = False
        self._answers[key] = _Answer(review, at_s)
        self._answers.move_to_end(key)
        while len(self._answers) > ANSWERS_MAX:
            self._answers.popitem(last=False)
        return review

    def _on_answered(self, key: _Key, task: "asyncio.Task[CallerReview]") -> None:
        del self._questions[key]
        if not task.cancelled():
            task.exception()  # retrieved: asyncio logs the errors that no caller retrieves
