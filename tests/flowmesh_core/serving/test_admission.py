"""Requests are refused at once where they could not be served in time or fairly."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowmesh_core.serving.route.admission import (
    OnLate,
    ServiceLoad,
    Verdict,
    admit,
    within_any_share,
)

LOAD = ServiceLoad(max_in_flight=8, in_flight={}, places=4, predicted_s=1.0)


def with_load(**changes: object) -> ServiceLoad:
    return msgspec.structs.replace(LOAD, **changes)


def with_counts(load: ServiceLoad, **counts: int) -> ServiceLoad:
    return msgspec.structs.replace(load, in_flight=counts)


def test_a_request_that_fits_is_admitted() -> None:
    assert admit(LOAD, "a", 2.0).verdict is Verdict.ADMITTED


def test_no_more_requests_are_in_flight_than_the_service_allows() -> None:
    full = with_load(in_flight={"a": 3, "b": 5})
    admission = admit(full, "c", 9.0)
    assert admission.verdict is Verdict.SERVICE_FULL
    assert not admission.accepted
    assert admission.retry_after_s == 1.0


def test_while_places_are_free_a_tenant_may_take_them_all() -> None:
    assert admit(with_load(in_flight={"a": 3}), "a", 2.0).accepted


def test_at_a_saturated_service_each_tenant_has_its_share() -> None:
    busy = with_load(in_flight={"a": 4, "b": 1})
    assert admit(busy, "a", 9.0).verdict is Verdict.TENANT_SHARE
    assert admit(busy, "b", 9.0).accepted
    assert admit(busy, "newcomer", 9.0).accepted


def test_shares_follow_the_weights() -> None:
    busy = with_load(in_flight={"a": 4, "b": 1}, weights={"a": 3.0})
    assert admit(busy, "a", 9.0).accepted
    assert admit(with_load(in_flight={"a": 6, "b": 1}, weights={"a": 3.0}), "a", 9.0).verdict is (
        Verdict.TENANT_SHARE
    )


def test_a_tenant_that_floods_alone_leaves_a_share_to_one_that_has_no_request_yet() -> None:
    alone = with_load(tenants=("a", "b"), places=2)
    taken = 0
    while admit(with_counts(alone, a=taken), "a", 9.0).accepted:
        taken += 1
    assert taken == 4
    others = 0
    while admit(with_counts(alone, a=taken, b=others), "b", 9.0).accepted:
        others += 1
    assert others == 4


def test_where_no_other_tenant_may_call_one_has_everything() -> None:
    alone = with_load(tenants=("a",), places=2, in_flight={"a": 7})
    assert admit(alone, "a", 9.0).accepted


def test_a_share_is_kept_where_all_requests_fit_into_the_running_places() -> None:
    roomy = with_load(tenants=("a", "b"), places=100)
    assert admit(with_counts(roomy, a=3), "a", 9.0).accepted
    assert admit(with_counts(roomy, a=4), "a", 9.0).verdict is Verdict.TENANT_SHARE


def test_a_heavier_newcomer_keeps_more_free() -> None:
    alone = with_load(tenants=("a", "b"), weights={"b": 3.0}, places=1)
    assert admit(with_counts(alone, a=1), "a", 9.0).accepted
    assert not admit(with_counts(alone, a=2), "a", 9.0).accepted


@settings(max_examples=200)
@given(most=st.integers(2, 60), places=st.integers(1, 90), floods=st.integers(1, 4))
def test_whatever_floods_a_newcomer_gets_its_share_once_the_others_have_theirs(
    most: int, places: int, floods: int
) -> None:
    flooding = "abcd"[:floods]
    load = ServiceLoad(max_in_flight=most, in_flight={}, places=places, tenants=(*flooding, "e"))
    counts: Counter[str] = Counter()
    for tenant in flooding * most:
        if admit(msgspec.structs.replace(load, in_flight=counts), tenant, 9.0).accepted:
            counts[tenant] += 1
    assert sum(counts.values()) <= most
    for tenant in flooding:  # what is over a share ends and is not replaced
        counts[tenant] = min(counts[tenant], most // (floods + 1))
    newcomers = 0
    while admit(msgspec.structs.replace(load, in_flight=counts), "e", 9.0).accepted:
        counts["e"] += 1
        newcomers += 1
    assert newcomers >= most // (floods + 1)


@pytest.mark.parametrize(
    ("on_late", "verdict"),
    [
        (OnLate.REFUSE, Verdict.TOO_LATE),
        (OnLate.DEMOTE, Verdict.DEMOTED),
        (OnLate.SERVE, Verdict.ADMITTED),
    ],
)
def test_a_late_request_goes_by_the_services_rule(on_late: OnLate, verdict: Verdict) -> None:
    assert admit(with_load(on_late=on_late), "a", 0.5).verdict is verdict


def test_without_a_replica_only_requests_that_can_wait_for_one_are_taken() -> None:
    loading = with_load(places=0, replica_in_s=30.0, predicted_s=31.0)
    admission = admit(loading, "a", 20.0)
    assert (admission.verdict, admission.retry_after_s) == (Verdict.NO_REPLICA, 30.0)
    assert admit(loading, "a", 60.0).accepted


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 6)),
    st.integers(0, 30),
    st.integers(0, 30),
    st.sets(st.sampled_from("abcde")),
)
def test_a_request_for_which_there_is_room_is_admitted(
    in_flight: dict[str, int], most: int, places: int, tenants: set[str]
) -> None:
    load = ServiceLoad(most, in_flight, places, tenants=tuple(tenants), on_late=OnLate.SERVE)
    if within_any_share(sum(in_flight.values()), most, places):
        assert admit(load, "a", 1.0).verdict is Verdict.ADMITTED


def test_there_is_room_below_half_of_all_while_places_are_free() -> None:
    assert within_any_share(3, 8, 4)
    assert not within_any_share(4, 8, 9)
    assert not within_any_share(3, 8, 3)
