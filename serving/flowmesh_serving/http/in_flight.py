"""The requests that have not ended, by service and namespace, and whether one more is taken.

The decision is :func:`flowmesh_core.serving.route.admission.admit`; here are the counts. A request
that is not taken may take the place of one of lower priority of its own namespace at its own
service, so that no count changes.
"""

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.serving.queue.call_queue import QUEUED_PER_RUNNING
from flowmesh_core.serving.queue.request_priority import RequestPriority
from flowmesh_core.serving.route.admission import (
    OnLate,
    ServiceLoad,
    Verdict,
    admit,
    shares,
    within_any_share,
)
from flowmesh_serving.calls.replicas import ReplicaTable
from flowmesh_serving.errors import replicas_full, too_many_requests
from flowmesh_serving.requests.request_record import RequestRecord
from flowmesh_serving.service_table import Caller, ServiceTable

_ENDLESS_S = float("inf")


class TenantCounts(dict[str, int]):
    """Requests by namespace, and of all.

    Attributes:
        all: of all namespaces.
    """

    def __init__(self) -> None:
        super().__init__()
        self.all = 0

    def __missing__(self, tenant: str) -> int:
        """Returns 0, for a namespace without a request."""
        return 0

    def change(self, tenant: str, by: int) -> None:
        """Adds to the requests of a namespace."""
        self.all += by
        count = self.get(tenant, 0) + by
        if count:
            self[tenant] = count
        else:
            self.pop(tenant, None)


@dataclass(slots=True, eq=False)
class Place:
    """The place of a request among those in flight.

    Attributes:
        record: of the request, by which it can be shed; None for one that cannot be.
        is_taken: whether another request has the place now.
    """

    caller: Caller
    priority: RequestPriority
    record: RequestRecord | None = None
    is_taken: bool = False

    @property
    def can_be_shed(self) -> bool:
        """Whether the request may be ended for one of higher priority."""
        return self.record is not None and self.record.can_be_shed and not self.is_taken


class InFlightRequests:
    """Counts the requests that have not ended."""

    def __init__(self, most: int, services: ServiceTable, replicas: ReplicaTable) -> None:
        """Limits the router to ``most`` requests of all callers."""
        self._most = most
        self._services = services
        self._replicas = replicas
        self._by_tenant = TenantCounts()
        self._by_service: dict[str, TenantCounts] = {}
        self._places: dict[tuple[str, str], dict[Place, None]] = {}

    def of(self, service: str) -> TenantCounts:
        """Returns the requests of a service by namespace."""
        return self._by_service.get(service) or TenantCounts()

    @contextlib.contextmanager
    def slot(
        self, caller: Caller, priority: RequestPriority = RequestPriority.NORMAL
    ) -> Iterator[Place]:
        """Counts a request of a caller during the block.

        Raises:
            OpenAiError: as :meth:`enter`, and no request of lower priority can be shed for it.
        """
        place = Place(caller, priority)
        try:
            self.enter(caller)
        except OpenAiError:
            if not self._take_place(place):
                raise
        group = caller.service.service, caller.namespace
        self._places.setdefault(group, {})[place] = None
        try:
            yield place
        finally:
            own = self._places[group]
            del own[place]
            if not own:
                del self._places[group]
            if not place.is_taken:
                self.leave(caller)

    def _take_place(self, place: Place) -> bool:
        """Sheds a request for this one: of the lowest priority the newest, of the same group."""
        group = place.caller.service.service, place.caller.namespace
        lower = (
            one
            for one in reversed(self._places.get(group, {}))
            if one.priority < place.priority and one.can_be_shed
        )
        shed = min(lower, key=lambda one: one.priority, default=None)
        if shed is None or shed.record is None:
            return False
        shed.is_taken = True
        shed.record.shed()
        return True

    def enter(self, caller: Caller) -> None:
        """Counts a request of a caller until it leaves.

        Raises:
            OpenAiError: the caller has its share, or the service or the router all that it takes.
        """
        name = caller.service.service
        counts = self._by_service.get(name) or TenantCounts()
        if error := self._refusal(caller, counts):
            raise error
        self._by_service[name] = counts
        counts.change(caller.namespace, 1)
        self._by_tenant.change(caller.namespace, 1)

    def leave(self, caller: Caller) -> None:
        """Counts a request less."""
        name = caller.service.service
        self._by_tenant.change(caller.namespace, -1)
        counts = self._by_service[name]
        counts.change(caller.namespace, -1)
        if not counts:
            del self._by_service[name]

    def _refusal(self, caller: Caller, counts: TenantCounts) -> OpenAiError | None:
        entry = caller.service
        places = self._replicas.places(entry.service)
        # What replicas would refuse is refused here, before its body is read.
        most = min(entry.in_flight_max, (1 + QUEUED_PER_RUNNING) * places or entry.in_flight_max)
        if (
            within_any_share(self._by_tenant.all, self._most, self._most)
            and within_any_share(counts.all, most, places or most)
            and not entry.weights
        ):
            return None
        tenant = caller.namespace
        everything = _load(self._most, self._by_tenant, self._most, self._services.tenants)
        match admit(everything, tenant, _ENDLESS_S).verdict:
            case Verdict.SERVICE_FULL:
                return too_many_requests("this router", self._most)
            case Verdict.TENANT_SHARE:
                return _over_share(everything, tenant)
        tenants = self._services.tenants_of(entry.service)
        service = _load(most, counts, places or most, tenants, entry.weights)
        match admit(service, tenant, _ENDLESS_S).verdict:
            case Verdict.SERVICE_FULL:
                return replicas_full()
            case Verdict.TENANT_SHARE:
                return _over_share(service, tenant)
        return None


def _load(
    most: int,
    counts: TenantCounts,
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
