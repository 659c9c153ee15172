"""Decisions to retry a call, and the waits."""

import pytest

from flowmesh_core.errors import FailureKind
from flowmesh_worker.engines.http.call import Call, CallError, HttpResponse
from flowmesh_worker.engines.http.retrying import may_retry, retry_after_s, wait_s
from flowmesh_worker.engines.http.row_calls import idempotency_key

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT
BUSY = HttpResponse("u", 503, "")
BROKEN = CallError(FailureKind.ENGINE, "broken", sent=True)
UNSENT = CallError(FailureKind.ENGINE, "no connection", sent=False)
REFUSED = CallError(FailureKind.BAD_INPUT, "refused", sent=False)
ONCE, OFTEN = Call("POST", "u", {}, retries=2), Call("GET", "u", {}, retries=2, repeatable=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0.0),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, expected: float | None) -> None:
    assert retry_after_s({"Retry-After": text}, NOW) == expected


def test_without_a_retry_after_header_delays_double_up_to_a_bound() -> None:
    assert [wait_s(n, None) for n in (1, 2, 3, 20)] == [0.5, 1.0, 2.0, 30.0]
    assert wait_s(3, 7.0) == 7.0


@pytest.mark.parametrize(
    ("call", "ended", "again"),
    [
        (OFTEN, BUSY, True),
        (OFTEN, BROKEN, True),
        (OFTEN, UNSENT, True),
        (OFTEN, REFUSED, False),
        (OFTEN, HttpResponse("u", 404, ""), False),
        (ONCE, BUSY, False),
        (ONCE, BROKEN, False),
        (ONCE, UNSENT, True),
    ],
)
def test_a_request_that_a_server_may_have_seen_is_repeated_only_if_that_is_harmless(
    call: Call, ended: HttpResponse | CallError, again: bool
) -> None:
    assert may_retry(call, 1, ended, 0.0) is again
    assert not may_retry(call, 3, ended, 0.0)
    assert not may_retry(call, 1, ended, 61.0)


def test_a_key_names_an_action_and_a_row() -> None:
    keys = {idempotency_key(a, n) for a in ("a", "b") for n in (1, 2)}
    assert len(keys) == 4
    assert idempotency_key("a", 1) == idempotency_key("a", 1)
