"""The replicas that connected hubs have reported, as the router sees them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from flowmesh_core.protocol.serving import ReplicaLoad
from flowmesh_core.serving.route.replica_choice import Candidate, choose_replica
from flowmesh_serving.links.hub_link import HubLink


@dataclass(slots=True, eq=False)
class RoutedReplica:
    """A replica and the hub that has it.

    Attributes:
        load: as its hub reported it last.
    """

    link: HubLink
    candidate: Candidate
    load: ReplicaLoad


@dataclass(slots=True)
class ReplicaTable:
    """All replicas that take calls."""

    _by_service: dict[str, dict[str, RoutedReplica]] = field(default_factory=dict)

    def update(self, link: HubLink, loads: tuple[ReplicaLoad, ...]) -> None:
        """Records all replicas of a hub; those that it does not list any more are dropped."""
        before = {
            r.candidate.replica_id: r
            for replicas in self._by_service.values()
            for r in replicas.values()
            if r.link is link
        }
        self.remove(link)
        for load in loads:
            known = before.get(load.replica_id)
            own = known.candidate.own if known is not None else 0
            replica = known or RoutedReplica(link, Candidate(load.replica_id, (), 1), load)
            replica.load = load
            replica.candidate.paths = load.paths
            replica.candidate.calls_max = max(1, load.calls_max)
            replica.candidate.reported = load.running + load.queued
            replica.candidate.own_reported = own
            self._by_service.setdefault(load.service, {})[load.replica_id] = replica

    def remove(self, link: HubLink) -> None:
        """Drops the replicas of a hub."""
        for service, replicas in list(self._by_service.items()):
            for replica_id in [i for i, r in replicas.items() if r.link is link]:
                del replicas[replica_id]
            if not replicas:
                del self._by_service[service]

    def count(self, service: str) -> int:
        """Returns how many replicas of a service take calls."""
        return len(self._by_service.get(service, {}))

    def of(self, service: str) -> Mapping[str, RoutedReplica]:
        """Returns the replicas of a service by id."""
        return self._by_service.get(service, {})

    def paths(self, service: str) -> set[str]:
        """Returns the paths that replicas of a service answer; none without a replica."""
        replicas = self._by_service.get(service, {}).values()
        return {path for r in replicas for path in r.candidate.paths}

    def choose(
        self, service: str, path: str, tried: Collection[str], call_id: str
    ) -> RoutedReplica | None:
        """Returns the replica that gets a call; None if there is none.

        Args:
            service: ``namespace/name``.
            path: what the call asks for.
            tried: replicas that have refused the call.
            call_id: spreads calls evenly among replicas that are equally loaded.
        """
        replicas = self._by_service.get(service, {})
        candidates = (r.candidate for r in replicas.values())
        found = choose_replica(candidates, path, tried, request=call_id)
        return None if found is None else replicas[found.replica_id]
