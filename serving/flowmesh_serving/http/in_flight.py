"""The requests that have not ended, by service and namespace, and whether one more is taken.

The decision is :func:`flowmesh_core.serving.route.admission.admit`; here are the counts.
"""

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.serving.queue.call_queue import QUEUED_PER_RUNNING
from flowmesh_core.serving.route.admission import OnLate, ServiceLoad, Verdict, admit, shares
from flowmesh_serving.calls.replicas import ReplicaTable
from flowmesh_serving.errors import replicas_full, too_many_requests
from flowmesh_serving.service_table import Caller, ServiceTable

_ENDLESS_S = float("inf")


class InFlightRequests:
    """Counts the requests that have not ended."""

    def __init__(self, most: int, services: ServiceTable, replicas: ReplicaTable) -> None:
        """Limits the router to ``most`` requests of all callers."""
        self._most = most
        self._services = services
        self._replicas = replicas
        self._by_tenant: Counter[str] = Counter()
        self._by_service: dict[str, Counter[str]] = {}

    def of(self, service: str) -> Mapping[str, int]:
        """Returns the requests of a service by namespace."""
        return self._by_service.get(service, {})

    @contextlib.contextmanager
    def slot(self, caller: Caller) -> Iterator[None]:
        """Counts a request of a caller during the block.

        Raises:
            OpenAiError: the caller has its share, or the service or the router all that it takes.
        """
        name, tenant = caller.service.service, caller.namespace
        counts = self._by_service.get(name) or Counter()
        if error := self._refusal(caller, counts):
            raise error
        self._by_service[name] = counts
        _add(counts, tenant, 1)
        _add(self._by_tenant, tenant, 1)
        try:
            yield
        finally:
            _add(self._by_tenant, tenant, -1)
            _add(counts, tenant, -1)
            if not counts:
                self._by_service.pop(name, None)

    def _refusal(self, caller: Caller, counts: Counter[str]) -> OpenAiError | None:
        tenant = caller.namespace
        everything = _load(self._most, self._by_tenant, self._most, self._services.tenants)
        match admit(everything, tenant, _ENDLESS_S).verdict:
            case Verdict.SERVICE_FULL:
                return too_many_requests("this router", self._most)
            case Verdict.TENANT_SHARE:
                return _over_share(everything, tenant)
        service = self._service_load(caller, counts)
        match admit(service, tenant, _ENDLESS_S).verdict:
            case Verdict.SERVICE_FULL:
                return replicas_full()
            case Verdict.TENANT_SHARE:
                return _over_share(service, tenant)
        return None

    def _service_load(self, caller: Caller, counts: Counter[str]) -> ServiceLoad:
        entry = caller.service
        places = self._replicas.places(entry.service)
        # What replicas would refuse is refused here, before its body is read.
        most = min(entry.in_flight_max, (1 + QUEUED_PER_RUNNING) * places or entry.in_flight_max)
        tenants = self._services.tenants_of(entry.service)
        return _load(most, counts, places or most, tenants, entry.weights)


def _load(
    most: int,
    counts: Counter[str],
    places: int,
    tenants: Collection[str],
    weights: dict[str, float] | None = None,
) -> ServiceLoad:
    return ServiceLoad(
        max_in_flight=most,
        in_flight=counts,
        places=places,
        weights=weights or {},
        tenants=tenants,
        on_late=OnLate.SERVE,  # the hub's queue holds deadlines
    )


def _over_share(load: ServiceLoad, tenant: str) -> OpenAiError:
    return too_many_requests("this namespace", max(1, int(shares(load, tenant)[0])))


def _add(counts: Counter[str], tenant: str, change: int) -> None:
    counts[tenant] += change
    if not counts[tenant]:
        del counts[tenant]
