"""Requests are refused at once where they could not be served in time or fairly."""

import msgspec
import pytest

from flowmesh_core.serving.route.admission import OnLate, ServiceLoad, Verdict, admit

LOAD = ServiceLoad(max_in_flight=8, in_flight={}, places=4, predicted_s=1.0)


def with_load(**changes: object) -> ServiceLoad:
    return msgspec.structs.replace(LOAD, **changes)


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
