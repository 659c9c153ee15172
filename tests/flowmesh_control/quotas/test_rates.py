"""Token buckets of users, by a clock that the test sets."""

import pytest

from flowmesh_api.v1.quotas import Quota
from flowmesh_control.errors import RateExceededError
from flowmesh_control.quotas.quotas import Quotas
from flowmesh_control.quotas.rates import OpenLimit, Rates, RequestRate

QUOTA = Quota(
    name="q",
    namespaces=("team-b",),
    requests_per_second=2.0,
    request_burst=4,
    plans_per_minute=30,
    open_watches=1,
)


class Clock:
    """A time that the test sets."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


async def given(*quotas: Quota) -> tuple[Rates, Quotas, Clock]:
    async def post(event: object) -> None:
        del event

    found, clock = Quotas(post), Clock()
    await found.replace_all(quotas, {})
    return Rates(found, clock), found, clock


async def test_a_burst_passes_and_then_one_at_the_rate() -> None:
    rates, quotas, clock = await given(QUOTA)
    for _ in range(4):
        rates.take(RequestRate.REQUESTS, "b", "team-b")
    with pytest.raises(RateExceededError) as refused:
        rates.take(RequestRate.REQUESTS, "b", "team-b")
    assert refused.value.retryable
    assert refused.value.retry_after_s == 1.0
    assert quotas.refusals == {"requests": 1}
    clock.now_s += 0.5
    rates.take(RequestRate.REQUESTS, "b", "team-b")
    with pytest.raises(RateExceededError):
        rates.take(RequestRate.REQUESTS, "b", "team-b")


async def test_the_text_names_the_namespace_the_limit_and_the_wait() -> None:
    rates, _, _ = await given(QUOTA)
    for _ in range(30):
        rates.take(RequestRate.PLANS, "b", "team-b")
    with pytest.raises(RateExceededError) as refused:
        rates.take(RequestRate.PLANS, "b", "team-b")
    assert str(refused.value) == (
        "quota: namespace team-b asks for more than 30 plans in a minute; try again in 2 s"
    )


async def test_users_and_namespaces_do_not_share_a_bucket() -> None:
    rates, _, _ = await given(QUOTA)
    for _ in range(4):
        rates.take(RequestRate.REQUESTS, "b", "team-b")
    rates.take(RequestRate.REQUESTS, "another", "team-b")
    for _ in range(1000):
        rates.take(RequestRate.REQUESTS, "b", "team-a")


async def test_a_request_without_a_namespace_counts_for_the_service_accounts_namespace() -> None:
    rates, _, _ = await given(QUOTA)
    for _ in range(4):
        rates.take(RequestRate.REQUESTS, "system:serviceaccount:team-b:ci", "")
    with pytest.raises(RateExceededError, match="namespace team-b sends"):
        rates.take(RequestRate.REQUESTS, "system:serviceaccount:team-b:ci", "")


async def test_a_users_request_without_a_namespace_counts_against_the_users_own_rate() -> None:
    rates, _, _ = await given(Quota(name="every", namespaces=("*",), request_burst=2))
    for _ in range(2):
        rates.take(RequestRate.REQUESTS, "alice", "")
    with pytest.raises(RateExceededError, match="this user sends more than 20 requests a second"):
        rates.take(RequestRate.REQUESTS, "alice", "")


async def test_an_open_watch_counts_until_it_is_closed() -> None:
    rates, _, _ = await given(QUOTA)
    with rates.opened(OpenLimit.WATCHES, "b", "team-b"):
        with (
            pytest.raises(RateExceededError, match="has 1 watches open"),
            rates.opened(OpenLimit.WATCHES, "b", "team-b"),
        ):
            pass
        with rates.opened(OpenLimit.WATCHES, "another", "team-b"):
            pass
    with rates.opened(OpenLimit.WATCHES, "b", "team-b"):
        pass


async def test_the_number_of_user_buckets_is_bounded() -> None:
    rates, _, clock = await given(QUOTA)
    for number in range(25_000):
        clock.now_s += 0.001
        rates.take(RequestRate.REQUESTS, f"user-{number}", "team-b")
    assert len(rates._buckets) <= 10_000
