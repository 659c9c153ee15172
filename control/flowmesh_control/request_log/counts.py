"""Counts requests that are not logged one by one, and bounds how many refusals are.

Plain reads are counted by minute. So are refusals of a user, or of an address without a valid
token, beyond ``REFUSALS_A_MINUTE``: a client that asks in a loop must not fill the store.
"""

from collections import Counter
from typing import NamedTuple

from flowmesh_api.v1.request_log import LogEntry, RequestUser
from flowmesh_control.request_log.entries import COMPLETE, COUNT, make_entry, make_reference

WINDOW_S = 60.0
REFUSALS_A_MINUTE = 100
KINDS_MAX = 10_000
"""The most kinds of requests in a window; what does not fit is counted without user and object."""


class CountedRequest(NamedTuple):
    """What requests must have in common to be counted together."""

    user: RequestUser
    namespace: str
    verb: str
    resource: str
    code: int


class RequestCounts:
    """The counts of the current minute."""

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._counts: Counter[CountedRequest] = Counter()
        self._refusals: Counter[str] = Counter()

    def add(self, request: CountedRequest, now_s: float) -> None:
        """Counts a request."""
        self._begin(now_s)
        if request not in self._counts and len(self._counts) >= KINDS_MAX:
            request = CountedRequest(RequestUser(), "", request.verb, "", request.code)
        self._counts[request] += 1

    def admits_refusal(self, of: str, now_s: float) -> bool:
        """Whether another refusal of a user or address gets an entry of its own."""
        self._begin(now_s)
        if of not in self._refusals and len(self._refusals) >= KINDS_MAX:
            return False
        self._refusals[of] += 1
        return self._refusals[of] <= REFUSALS_A_MINUTE

    def take(self, now_s: float, *, unfinished: bool = False) -> list[LogEntry]:
        """Returns the entries of a minute that is over, and begins the next one.

        Args:
            now_s: Unix time in seconds.
            unfinished: return those of the current minute too.
        """
        began_s = self._began_s
        if began_s is None or (now_s - began_s < WINDOW_S and not unfinished):
            return []
        found = [
            make_entry(
                stage=COMPLETE,
                verb=request.verb,
                uri=f"/v1/{request.resource}",
                user=request.user,
                received_s=began_s,
                at_s=now_s,
                about=make_reference(request.resource, namespace=request.namespace),
                code=request.code,
                annotations={COUNT: str(count)},
            )
            for request, count in self._counts.items()
        ]
        self._began_s = None
        self._counts.clear()
        self._refusals.clear()
        return found

    def _begin(self, now_s: float) -> None:
        if self._began_s is None:
            self._began_s = now_s
