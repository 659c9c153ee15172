"""Bounds how often the users of a namespace ask, and how much they have open at once.

Each user has a token bucket of its own for each namespace, so that one user's loop does not stop
its colleagues. A request that names no namespace counts for that of the user's service account,
else for the quota of every namespace.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from flowmesh_api.v1.quotas import Quota
from flowmesh_control.errors import RateExceededError
from flowmesh_control.loop.clock import Clock
from flowmesh_control.quotas.quotas import Quotas

_SERVICE_ACCOUNT = "system:serviceaccount:"
_BUCKETS_MAX = 10_000
_OPEN_RETRY_S = 1.0


class RequestRate(StrEnum):
    """What is counted over time."""

    REQUESTS = "requests"
    SUBMISSIONS = "submissions"
    PLANS = "plans"


class OpenLimit(StrEnum):
    """What is counted while it is open."""

    WATCHES = "watches"
    UPLOADS = "uploads"


@dataclass(slots=True)
class TokenBucket:
    """Tokens that come back at a constant rate.

    Attributes:
        tokens: how many there were at ``at_s``.
    """

    tokens: float
    at_s: float

    def take(self, now_s: float, *, per_s: float, burst: float) -> float:
        """Takes a token; returns 0, or the seconds until there is one."""
        passed_s = max(0.0, now_s - self.at_s)
        self.tokens, self.at_s = min(burst, self.tokens + passed_s * per_s), now_s
        if self.tokens >= 1.0:
            self.tokens -= 1.0
            return 0.0
        return (1.0 - self.tokens) / per_s


class Rates:
    """The token buckets and open connections of users."""

    def __init__(self, quotas: Quotas, clock: Clock) -> None:
        """Starts with full buckets.

        Args:
            quotas: those in force.
            clock: seconds that never go back.
        """
        self._quotas = quotas
        self._clock = clock
        self._buckets: dict[tuple[RequestRate, str, str], TokenBucket] = {}
        self._open = Counter[tuple[OpenLimit, str, str]]()

    def take(self, rate: RequestRate, user: str, namespace: str) -> None:
        """Counts one of something for a user in a namespace, empty for none.

        Raises:
            RateExceededError: there were too many; it says when to try again.
        """
        namespace = namespace or _home(user)
        quota = self._quotas.of(namespace)
        if quota is None:
            return
        per_s, burst = _bound(quota, rate)
        now_s, key = self._clock(), (rate, user, namespace)
        bucket = self._buckets.get(key)
        if bucket is None:
            self._forget_some()
            bucket = self._buckets[key] = TokenBucket(burst, now_s)
        wait_s = bucket.take(now_s, per_s=per_s, burst=burst)
        if wait_s > 0.0:
            self._quotas.refusals[rate] += 1
            raise _too_often(namespace, _words(quota, rate), wait_s)

    @contextlib.contextmanager
    def opened(self, limit: OpenLimit, user: str, namespace: str) -> Iterator[None]:
        """Counts something of a user in a namespace while it is open.

        Raises:
            RateExceededError: too many are open.
        """
        key = (limit, user, namespace)
        quota = self._quotas.of(namespace)
        if quota is not None:
            most = quota.open_watches if limit is OpenLimit.WATCHES else quota.open_uploads
            if self._open[key] >= most:
                self._quotas.refusals[limit] += 1
                text = f"has {most} {limit} open, of at most {most} for a user"
                raise _too_often(namespace, text, _OPEN_RETRY_S)
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]

    def _forget_some(self) -> None:
        """Drops the older half of the buckets where there are too many."""
        if len(self._buckets) >= _BUCKETS_MAX:
            oldest = sorted(self._buckets, key=lambda key: self._buckets[key].at_s)
            for key in oldest[: _BUCKETS_MAX // 2]:
                del self._buckets[key]


def _home(user: str) -> str:
    """Returns the namespace of a service account; empty for other users."""
    if not user.startswith(_SERVICE_ACCOUNT):
        return ""
    return user.removeprefix(_SERVICE_ACCOUNT).partition(":")[0]


def _bound(quota: Quota, rate: RequestRate) -> tuple[float, float]:
    """Returns how many a second come back, and how many may come at once."""
    match rate:
        case RequestRate.REQUESTS:
            return quota.requests_per_second, quota.request_burst
        case RequestRate.SUBMISSIONS:
            return quota.submissions_per_minute / 60, quota.submissions_per_minute
        case RequestRate.PLANS:
            return quota.plans_per_minute / 60, quota.plans_per_minute


def _words(quota: Quota, rate: RequestRate) -> str:
    match rate:
        case RequestRate.REQUESTS:
            return (
                f"sends more than {quota.requests_per_second:g} requests a second after "
                f"{quota.request_burst} at once"
            )
        case RequestRate.SUBMISSIONS:
            return (
                f"submits more than {quota.submissions_per_minute} runs, audits, services and "
                "batches in a minute"
            )
        case RequestRate.PLANS:
            return f"asks for more than {quota.plans_per_minute} plans in a minute"


def _too_often(namespace: str, text: str, wait_s: float) -> RateExceededError:
    who = f"namespace {namespace}" if namespace else "this user"
    return RateExceededError(f"{who} {text}", wait_s=float(ceil(wait_s)))
