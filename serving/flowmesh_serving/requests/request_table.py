"""The requests of a router: those in flight, and the last that have ended of each caller.

In memory only: a router that is started again knows none, and no router knows those of another.
"""

from collections.abc import Callable, Collection

from flowmesh_serving.requests.request_record import RequestRecord
from flowmesh_serving.service_table import Caller

ENDED_MAX = 100
"""Requests that have ended and are remembered, of one namespace at one service: a namespace that
sends many forgets its own only."""


class RequestTable:
    """Finds requests by their ids, for callers of the namespace that sent them."""

    def __init__(self) -> None:
        self._in_flight: dict[str, RequestRecord] = {}
        self._ended: dict[tuple[str, str], dict[str, RequestRecord]] = {}

    def begin(
        self, request_id: str, caller: Caller, path: str, abort: Callable[[], object]
    ) -> RequestRecord:
        """Remembers a request, which the caller of this must :meth:`end`.

        Args:
            request_id: unique among all routers.
            caller: who sent it.
            path: that it was sent to.
            abort: ends it early; called once at most.
        """
        record = RequestRecord(request_id, caller.service.service, caller.namespace, path, abort)
        self._in_flight[request_id] = record
        return record

    def end(self, record: RequestRecord, outcome: str, code: str | None = None) -> None:
        """Records how a request has ended. May be called more than once.

        Args:
            record: of the request.
            outcome: as the metrics count it.
            code: OpenAI's, of the error that it was answered; None for none.
        """
        if self._in_flight.pop(record.request_id, None) is None:
            return
        record.end(outcome, code)
        ended = self._ended.setdefault((record.service, record.tenant), {})
        ended[record.request_id] = record
        if len(ended) > ENDED_MAX:
            del ended[next(iter(ended))]

    def find(self, caller: Caller, request_id: str) -> RequestRecord | None:
        """Returns a request of a caller's namespace; None for others', and unknown ones."""
        key = caller.service.service, caller.namespace
        record = self._in_flight.get(request_id)
        if record is None:
            return self._ended.get(key, {}).get(request_id)
        return record if (record.service, record.tenant) == key else None

    def of(self, caller: Caller) -> list[RequestRecord]:
        """Returns the requests of a caller's namespace, the newest first."""
        key = caller.service.service, caller.namespace
        own = [r for r in self._in_flight.values() if (r.service, r.tenant) == key]
        found = [*self._ended.get(key, {}).values(), *own]
        return sorted(found, key=lambda r: r.began_s, reverse=True)

    def keep(self, services: Collection[str]) -> None:
        """Forgets what has ended of all other services."""
        self._ended = {key: ended for key, ended in self._ended.items() if key[0] in services}
