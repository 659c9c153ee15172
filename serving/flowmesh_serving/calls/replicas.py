"""The replicas that connected hubs have reported, as the router sees them.

A hub is believed only about replicas that the control plane placed on its worker, and about one
that another worker's hub has reported only when that one is gone.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from flowmesh_core.protocol.serving import ReplicaLoad
from flowmesh_core.serving.route.replica_choice import Candidate, choose_replica
from flowmesh_serving.links.hub_link import HubLink

IsPlaced = Callable[[str, str, str], bool]
"""Whether a service's replica, by its id, may be on a worker."""


@dataclass(slots=True, eq=False)
class RoutedReplica:
    """A replica and the hub that has it.

    Attributes:
        load: as its hub reported it last.
    """

    link: HubLink
    candidate: Candidate
    load: ReplicaLoad

    @property
    def component(self) -> str:
        """The component, by the name that the control plane gave the replica."""
        return self._names()[0]

    @property
    def release(self) -> str:
        """The release, by that name; empty for a name without one."""
        return self._names()[1]

    def _names(self) -> tuple[str, str]:
        own = self.candidate.replica_id.removeprefix(f"{self.load.service}/")
        component, _, rest = own.partition("/")
        return component, rest.partition("/")[0]


@dataclass(slots=True)
class ReplicaTable:
    """All replicas that take calls.

    Attributes:
        is_placed: whether the control plane placed a replica on a worker.
        changes: is another number after each change of the table; what follows from the table may
            be kept until then.
    """

    is_placed: IsPlaced
    changes: int = 0
    _by_service: dict[str, dict[str, RoutedReplica]] = field(default_factory=dict)
    _reported: dict[HubLink, tuple[ReplicaLoad, ...]] = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict)

    def update(self, link: HubLink, loads: tuple[ReplicaLoad, ...]) -> bool:
        """Records all replicas of a hub; those that it does not list any more are dropped.

        Returns:
            Whether there is one that was not there before.
        """
        before = {
            (service, replica_id): r
            for service, replicas in self._by_service.items()
            for replica_id, r in replicas.items()
            if r.link is link
        }
        self.remove(link)
        self._reported[link] = loads
        is_new = False
        for load in loads:
            key = (load.service, load.replica_id)
            known = before.get(key)
            if not self._is_believed(link, load):
                continue
            is_new |= known is None
            replica = known or RoutedReplica(link, Candidate(load.replica_id, (), 1), load)
            replica.load = load
            replica.candidate.paths = load.paths
            replica.candidate.calls_max = max(1, load.calls_max)
            replica.candidate.reported = load.running + load.queued
            replica.candidate.own_reported = replica.candidate.own
            self._by_service.setdefault(load.service, {})[load.replica_id] = replica
        return is_new

    def placement_changed(self) -> bool:
        """Believes what hubs reported before as it is placed now; returns whether one is new."""
        updated = [self.update(link, loads) for link, loads in list(self._reported.items())]
        return any(updated)

    def _is_believed(self, link: HubLink, load: ReplicaLoad) -> bool:
        if not self.is_placed(load.service, load.replica_id, link.worker):
            return False
        other = self._by_service.get(load.service, {}).get(load.replica_id)
        return other is None or other.link.worker == link.worker

    def remove(self, link: HubLink) -> None:
        """Drops the replicas of a hub."""
        self._changed()
        self._reported.pop(link, None)
        for service, replicas in list(self._by_service.items()):
            for replica_id in [i for i, r in replicas.items() if r.link is link]:
                del replicas[replica_id]
            if not replicas:
                del self._by_service[service]

    def drop(self, service: str, replica: RoutedReplica) -> None:
        """Drops a replica that has ended, until its hub reports it again."""
        replicas = self._by_service.get(service, {})
        if replicas.get(replica.candidate.replica_id) is replica:
            del replicas[replica.candidate.replica_id]
            self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self._places.clear()

    def batch_caps(self) -> dict[tuple[str, str], int]:
        """Returns, by service and component, the largest batch; of an engine, calls at once."""
        found: dict[tuple[str, str], int] = {}
        for service, replicas in self._by_service.items():
            for replica in replicas.values():
                key, cap = (service, replica.component), replica.load.cap or replica.load.calls_max
                found[key] = max(found.get(key, 0), cap)
        return found

    def count(self, service: str) -> int:
        """Returns how many replicas of a service take calls."""
        return len(self._by_service.get(service, {}))

    def count_with(self, service: str, adapter: str) -> int:
        """Returns how many replicas of a service have an adapter."""
        return sum(adapter in r.load.adapters for r in self._by_service.get(service, {}).values())

    def places(self, service: str) -> int:
        """Returns how many calls the replicas of a service run at once."""
        found = self._places.get(service)
        if found is None:
            replicas = self._by_service.get(service)
            if not replicas:
                return 0
            found = self._places[service] = sum(r.candidate.calls_max for r in replicas.values())
        return found

    def of(self, service: str) -> Mapping[str, RoutedReplica]:
        """Returns the replicas of a service by id."""
        return self._by_service.get(service, {})

    def paths(self, service: str) -> set[str]:
        """Returns the paths that replicas of a service answer; none without a replica."""
        replicas = self._by_service.get(service, {}).values()
        return {path for r in replicas for path in r.candidate.paths}

    def choose(
        self,
        service: str,
        path: str,
        tried: Collection[str],
        call_id: str,
        key: str,
        adapter: str = "",
    ) -> RoutedReplica | None:
        """Returns the replica that gets a call; None if there is none.

        Args:
            service: ``namespace/name``.
            path: what the call asks for.
            tried: replicas that have refused the call.
            call_id: spreads calls evenly among replicas that are equally loaded.
            key: calls with one key go to one replica while it has room; empty for none.
            adapter: that the replica must have; empty for none.
        """
        replicas = self._by_service.get(service, {})
        having = (r for r in replicas.values() if not adapter or adapter in r.load.adapters)
        candidates = (r.candidate for r in having)
        found = choose_replica(candidates, path, tried, request=call_id, key=key)
        return None if found is None else replicas[found.replica_id]
