"""How many requests may be in flight: in the router, and of one namespace in one service."""

import contextlib
from collections import Counter
from collections.abc import Iterator

from flowmesh_serving.errors import too_many_requests
from flowmesh_serving.service_table import Caller


class InFlightLimits:
    """Counts the requests that have not ended."""

    def __init__(self, most: int) -> None:
        """Limits the router to ``most`` requests of all callers."""
        self._most = most
        self._all = 0
        self._by_caller: Counter[tuple[str, str]] = Counter()

    def of(self, service: str) -> dict[str, int]:
        """Returns the requests of a service by namespace."""
        return {who: n for (name, who), n in self._by_caller.items() if name == service}

    @contextlib.contextmanager
    def slot(self, caller: Caller) -> Iterator[None]:
        """Counts a request of a caller during the block.

        Raises:
            OpenAiError: the caller, or the router, has as many as it may have.
        """
        key = (caller.service.service, caller.namespace)
        if self._by_caller[key] >= caller.service.in_flight_max:
            raise too_many_requests("this namespace", caller.service.in_flight_max)
        if self._all >= self._most:
            raise too_many_requests("this router", self._most)
        self._all += 1
        self._by_caller[key] += 1
        try:
            yield
        finally:
            self._all -= 1
            self._by_caller[key] -= 1
            if not self._by_caller[key]:
                del self._by_caller[key]
