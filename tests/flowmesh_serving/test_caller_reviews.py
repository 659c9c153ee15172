"""How long a router believes what the control plane said about a token, and how often it asks."""

import asyncio

import pytest

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.caller_review import CallerReview
from flowmesh_serving.callers import caller_reviews as module
from flowmesh_serving.callers.caller_reviews import ALLOWED_S, AWAY_S, NO_RIGHT_S, UNKNOWN_S
from flowmesh_serving.callers.caller_reviews import CallerReviews as Reviews
from flowmesh_serving.callers.review_rate import BURST, PEER_BURST, PEER_PER_S

ALLOWED = CallerReview("ci", "team-a", may_call=True)
FORBIDDEN = CallerReview("ci", "team-a")
UNKNOWN = CallerReview()


class Control:
    """A control plane with one answer for every token, or none."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.review_of: CallerReview | None = ALLOWED
        self.asked: list[tuple[str, str]] = []
        self.reviews = Reviews(self, lambda: self.now_s)

    async def review(self, token: str, namespace: str) -> CallerReview:
        self.asked.append((token, namespace))
        await asyncio.sleep(0)
        if self.review_of is None:
            raise FlowMeshError("it does not answer")
        return self.review_of

    async def get(self, token: str = "t", namespace: str = "", peer: str = "p") -> CallerReview:
        review = await self.reviews.get(token, namespace, peer)
        await asyncio.gather(*self.reviews._questions.values(), return_exceptions=True)
        return review


async def test_requests_with_a_known_token_ask_nothing() -> None:
    control = Control()
    found = await asyncio.gather(*(control.reviews.get("t", "", "p") for _ in range(50)))
    assert set(found) == {ALLOWED}
    control.now_s = ALLOWED_S / 2 - 1
    assert await control.get() == ALLOWED
    assert control.asked == [("t", "")]


async def test_an_answer_that_is_used_is_asked_for_again_before_it_ends() -> None:
    control = Control()
    await control.get()
    control.review_of = FORBIDDEN
    control.now_s = ALLOWED_S - 1
    assert await control.get() == ALLOWED, "the request does not wait for the new answer"
    assert await control.get() == FORBIDDEN
    assert len(control.asked) == 2


async def test_a_right_that_was_taken_ends_with_its_answer() -> None:
    control = Control()
    await control.get()
    control.review_of = UNKNOWN
    control.now_s = ALLOWED_S
    assert await control.get() == UNKNOWN


@pytest.mark.parametrize(("review", "held_s"), [(UNKNOWN, UNKNOWN_S), (FORBIDDEN, NO_RIGHT_S)])
async def test_a_refusal_is_held_for_seconds(review: CallerReview, held_s: float) -> None:
    control = Control()
    control.review_of = review
    await control.get()
    control.review_of = ALLOWED
    control.now_s = held_s - 0.1
    assert await control.get() == review
    control.now_s = held_s
    assert await control.get() == ALLOWED
    assert len(control.asked) == 2


async def test_while_no_control_plane_answers_a_right_holds_for_a_minute() -> None:
    control = Control()
    await control.get()
    control.review_of = None
    control.now_s = AWAY_S - 1
    assert await control.get() == ALLOWED
    with pytest.raises(OpenAiError) as refused:
        await control.get("another")
    assert (refused.value.status, refused.value.code) == (503, "caller_not_reviewed")
    control.now_s = AWAY_S
    with pytest.raises(OpenAiError):
        await control.get()
    control.review_of = ALLOWED
    assert await control.get() == ALLOWED


async def test_a_refusal_does_not_outlive_its_seconds_while_no_control_plane_answers() -> None:
    control = Control()
    control.review_of = FORBIDDEN
    await control.get()
    control.review_of = None
    control.now_s = NO_RIGHT_S
    with pytest.raises(OpenAiError):
        await control.get()


async def test_a_peer_asks_about_a_bounded_number_of_tokens_and_leaves_some_to_others() -> None:
    control = Control()
    control.review_of = UNKNOWN
    for number in range(int(PEER_BURST)):
        await control.get(f"forged-{number}", peer="attacker")
    for number in range(100):
        with pytest.raises(OpenAiError) as refused:
            await control.get(f"more-{number}", peer="attacker")
        assert (refused.value.status, refused.value.code) == (429, "rate_limit_exceeded")
    assert len(control.asked) == PEER_BURST
    control.review_of = ALLOWED
    assert await control.get("owner", peer="owner") == ALLOWED
    control.now_s = 2.0
    await control.get("late", peer="attacker")
    assert len(control.asked) == PEER_BURST + 2
    for peer in range(100):
        for number in range(10):
            with pytest.raises(OpenAiError):  # noqa: PT012 - some are answered
                await control.get(f"{peer}-{number}", peer=str(peer))
                raise OpenAiError("answered")
    asked_most = BURST + PEER_PER_S * 10
    assert len(control.asked) <= PEER_BURST + 2 + asked_most
    assert await control.get("owner", peer="owner") == ALLOWED, "a known token asks nothing"


async def test_a_token_that_is_known_is_asked_about_again_during_a_flood() -> None:
    control = Control()
    await control.get("owner", peer="same")
    control.review_of = UNKNOWN
    for number in range(100):
        try:
            await control.get(f"forged-{number}", peer="same")
        except OpenAiError:
            break
    control.review_of = ALLOWED
    control.now_s = ALLOWED_S
    assert await control.get("owner", peer="same") == ALLOWED
    assert control.asked[-1] == ("owner", "")


async def test_the_number_of_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWERS_MAX", 3)
    control = Control()
    for number in range(10):
        await control.get(f"t{number}")
    assert len(control.reviews) == 3


async def test_a_client_that_leaves_does_not_end_the_question_of_another() -> None:
    control = Control()
    gone = asyncio.ensure_future(control.reviews.get("t", "", "p"))
    stays = asyncio.ensure_future(control.reviews.get("t", "", "p"))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == ALLOWED
    assert len(control.asked) == 1
