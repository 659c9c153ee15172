"""Decides whether a call is retried, and after how long. Pure."""

import email.utils
from collections.abc import Mapping
from datetime import UTC

from flowmesh_core.errors import FailureKind
from flowmesh_worker.engines.http.call import Call, CallError, HttpResponse

BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same call may succeed."""

WAIT_MAX_S = 60.0
"""If a server requests a longer wait, the attempt ends and reports it instead of waiting."""

_FIRST_WAIT_S = 0.5
_WAIT_S_MAX = 30.0


def retry_after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Returns ``Retry-After`` in seconds from now; None if it is missing or not valid.

    Args:
        headers: of an answer.
        now_s: seconds since the epoch, for a date (RFC 9110, section 10.2.3).
    """
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        date = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, date.timestamp() - now_s)


def wait_s(tried: int, asked_s: float | None) -> float:
    """Returns how long to wait before the next try, in seconds.

    Args:
        tried: number of tries so far, at least 1.
        asked_s: the wait that the server requested.
    """
    if asked_s is not None:
        return asked_s
    return min(_FIRST_WAIT_S * 2.0 ** (tried - 1), _WAIT_S_MAX)


def may_retry(call: Call, tried: int, ended: HttpResponse | CallError, wait: float) -> bool:
    """Whether a call is retried.

    A call that the server may have seen is repeated only if that is harmless.

    Args:
        call: the call.
        tried: number of tries so far.
        ended: the result of the last try.
        wait: the wait before the next try, in seconds.
    """
    if tried > call.retries or wait > WAIT_MAX_S:
        return False
    if isinstance(ended, HttpResponse):
        return call.repeatable and ended.status in BUSY
    if ended.kind is not FailureKind.ENGINE:
        return False
    return call.repeatable or not ended.sent
