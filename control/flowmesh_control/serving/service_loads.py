"""What routers have reported of services: their requests, and the profiles of their replicas.

The API's ``POST /v1/router`` gives it the reports; planning and the status of services read it. It
is in memory only: a new leader knows as much after a few minutes.
"""

from collections.abc import Callable, Collection, Mapping

from flowmesh_control.errors import ConflictError
from flowmesh_control.loop.clock import Clock
from flowmesh_core.protocol.router_reports import ReplicaProfile, RouterReport
from flowmesh_core.serving.plan.report_check import check_report
from flowmesh_core.serving.plan.request_meter import (
    ROUTERS_MAX,
    SLICE_S,
    RequestMeter,
    SeenRequests,
)
from flowmesh_core.serving.profile import BatchProfile

Placed = Mapping[str, Mapping[str, str]]
"""Service → the worker of each of its replicas, by the replica's id."""


class ServiceLoads:
    """The reports of all routers, summed."""

    def __init__(self, placed: Callable[[], Placed], clock: Clock) -> None:
        """Knows nothing yet.

        Args:
            placed: returns the replicas of all services; no others are believed.
            clock: Unix time in seconds.
        """
        self._placed = placed
        self._clock = clock
        self._meter = RequestMeter()
        self._profiles: dict[str, ReplicaProfile] = {}
        self._seen: dict[str, tuple[float, SeenRequests]] = {}

    def observe(self, report: RouterReport) -> int:
        """Takes a report; returns how many parts of it were ignored.

        Raises:
            ConflictError: too many routers report.
        """
        placed = self._placed()
        checked = check_report(report, placed)
        if checked.report is None:
            return checked.ignored
        if not self._meter.observe(checked.report, self._clock()):
            raise ConflictError(
                f"{ROUTERS_MAX} other routers report already",
                where="router",
                remedy="run fewer routers; one that is silent for a minute is forgotten",
            )
        for service in checked.report.services:
            self._seen.pop(service.service, None)
            self._profiles.update((p.replica_id, p) for p in service.replicas)
        known = {replica_id for replicas in placed.values() for replica_id in replicas}
        for gone in self._profiles.keys() - known:
            del self._profiles[gone]
        return checked.ignored

    def keep(self, services: Collection[str]) -> None:
        """Forgets all services but these."""
        self._meter.keep(services)
        for gone in self._seen.keys() - services:
            del self._seen[gone]

    def seen(self, service: str) -> SeenRequests:
        """Returns the requests of a service in the last minutes."""
        now_s = self._clock()
        found = self._seen.get(service)
        if found is None or not found[0] <= now_s < found[0] + SLICE_S:
            found = self._seen[service] = (now_s, self._meter.seen(service, now_s))
        return found[1]

    def replies(self, service: str) -> int:
        """Returns how many requests of a service have ended since its routers began."""
        return self._meter.replies(service)

    def replica(self, replica_id: str) -> ReplicaProfile | None:
        """Returns what was measured of a replica that forms batches; None for another."""
        return self._profiles.get(replica_id)

    def profiles(self, replicas: Mapping[str, str]) -> dict[str, BatchProfile]:
        """Returns the mean profile of some replicas by class of device.

        Args:
            replicas: by id, the class of their device.
        """
        found: dict[str, list[BatchProfile]] = {}
        for replica_id, device_class in replicas.items():
            if (known := self._profiles.get(replica_id)) is not None:
                profile = BatchProfile(known.sizes, known.seconds)
                found.setdefault(device_class, []).append(profile)
        return {name: BatchProfile.mean(profiles) for name, profiles in found.items()}
