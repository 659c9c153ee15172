"""Whether a router takes a request.

A request is refused at once where its reply could not be in time or would take another tenant's
places. Nothing waits in a queue without a bound. Of a busy service each tenant has a share, by its
weight. One share stays free for a tenant that may call and has no request yet, so that it is not
refused; the rest of the running places may be taken by any tenant.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum

import msgspec


class OnLate(StrEnum):
    """What becomes of a request whose reply cannot be in time; set by its service."""

    REFUSE = "refuse"
    DEMOTE = "demote"
    SERVE = "serve"


class Verdict(StrEnum):
    """The outcome of admission."""

    ADMITTED = "admitted"
    DEMOTED = "demoted"
    NO_REPLICA = "no-replica"
    SERVICE_FULL = "service-full"
    TENANT_SHARE = "tenant-share"
    TOO_LATE = "too-late"


class ServiceLoad(msgspec.Struct, frozen=True):
    """A service as a router sees it.

    Attributes:
        max_in_flight: requests of the service at once, at this router.
        in_flight: by tenant.
        tenants: all that may call the service, also those without a request.
        weights: of tenants; 1 where none is given.
        places: calls that all replicas of its busiest component take at once; 0 without a replica.
        replica_in_s: the predicted time until a replica is ready, where there is none.
        predicted_s: from now to the reply of a request that is admitted now.
        on_late: what becomes of requests that would be late.
    """

    max_in_flight: int
    in_flight: Mapping[str, int]
    places: int
    weights: Mapping[str, float] = {}
    tenants: Collection[str] = ()
    replica_in_s: float = 0.0
    predicted_s: float = 0.0
    on_late: OnLate = OnLate.DEMOTE


class AdmissionVerdict(msgspec.Struct, frozen=True):
    """The decision about a request.

    Attributes:
        retry_after_s: of a refusal: when the same request may be admitted; 0 where it is not known.
    """

    verdict: Verdict
    retry_after_s: float = 0.0

    @property
    def accepted(self) -> bool:
        """Whether the request is served, if only behind all others."""
        return self.verdict in (Verdict.ADMITTED, Verdict.DEMOTED)


def admit(load: ServiceLoad, tenant: str, budget_s: float) -> AdmissionVerdict:
    """Decides about a request.

    Args:
        load: of its service.
        tenant: who sent it.
        budget_s: what is left until its deadline.
    """
    if not load.places and load.replica_in_s > budget_s:
        return AdmissionVerdict(Verdict.NO_REPLICA, load.replica_in_s)
    total = sum(load.in_flight.values())
    if total >= load.max_in_flight:
        return AdmissionVerdict(Verdict.SERVICE_FULL, load.predicted_s)
    share, kept_free = shares(load, tenant)
    is_busy = total >= min(load.places, load.max_in_flight - kept_free) > 0
    if is_busy and load.in_flight.get(tenant, 0) >= share:
        return AdmissionVerdict(Verdict.TENANT_SHARE, load.predicted_s)
    if load.predicted_s <= budget_s or load.on_late is OnLate.SERVE:
        return AdmissionVerdict(Verdict.ADMITTED)
    if load.on_late is OnLate.DEMOTE:
        return AdmissionVerdict(Verdict.DEMOTED)
    return AdmissionVerdict(Verdict.TOO_LATE, load.predicted_s - budget_s)


def within_any_share(total: int, max_in_flight: int, places: int) -> bool:
    """Returns whether a request is within its tenant's share, whichever tenant's it is.

    Where no tenant has a weight, at most half of all is kept free. So below half, and while places
    are free, each request is admitted. :func:`admit` says the same, and takes ten times as long.

    Args:
        total: requests in flight, of all tenants.
        max_in_flight: as in :class:`ServiceLoad`.
        places: as in :class:`ServiceLoad`.
    """
    return total < places and 2 * total < max_in_flight


def shares(load: ServiceLoad, tenant: str) -> tuple[float, float]:
    """Returns a tenant's part of all admitted requests, and the part that is kept free.

    Parts are by weight among the tenants that have a request, this one, and one that has none yet.
    """
    active = {name for name, count in load.in_flight.items() if count} | {tenant}
    absent = (name for name in load.tenants if name not in active)
    if load.weights:
        newcomer = max((load.weights.get(name, 1.0) for name in absent), default=0.0)
    else:
        newcomer = 0.0 if next(absent, None) is None else 1.0
    total = sum(load.weights.get(name, 1.0) for name in active) + newcomer
    part = load.max_in_flight / total
    return part * load.weights.get(tenant, 1.0), part * newcomer
