"""What a hub does for the requests of one graph by one route: found once, not for each request."""

from collections.abc import Mapping
from dataclasses import dataclass

from flowmesh_core.stages.route import RequestRoute, StageRoute
from flowmesh_core.stages.service_graph import LoadedGraph, LoadedStage
from flowmesh_core.stages.stage_timing import UNTIMED, StageTiming
from flowmesh_core.stages.values import REQUEST
from flowmesh_worker.serving.instance_link import InstanceLink
from flowmesh_worker.serving.stage_replicas import StageReplicas

_PLANS_MAX = 256


@dataclass(frozen=True, slots=True, eq=False)
class StagePlan:
    """A stage that runs on this worker.

    Attributes:
        name: of the stage.
        loaded: the stage.
        replica_id: that runs it.
        instance: of that replica; None where it is not known here.
        is_stored: whether components of its host need its value.
        wants_body: whether its value is needed as JSON.
        wants_value: whether components of other hosts need its value.
        consumers: the stages that need its value, ``reply`` too, and whether each runs here.
        following: the stage that its host can run next without the hub, where only that one needs
            its value; empty where there is none.
        timing: what its calls may take.
    """

    name: str
    loaded: LoadedStage
    replica_id: str
    instance: InstanceLink | None
    is_stored: bool
    wants_body: bool
    wants_value: bool
    consumers: tuple[tuple[str, bool], ...]
    following: str
    timing: StageTiming


@dataclass(frozen=True, slots=True, eq=False)
class RoutePlan:
    """A route of a graph, as one hub has it.

    Attributes:
        generation: of the hub's replicas.
        places: of all stages.
        stages: those of this worker.
        needs: whose values each of them needs.
        of_request: those of them that need the request.
    """

    generation: int
    places: Mapping[str, StageRoute]
    stages: Mapping[str, StagePlan]
    needs: Mapping[str, frozenset[str]]
    of_request: tuple[str, ...]


class StagePlans:
    """The plans of one hub; most requests of a service share a few routes."""

    def __init__(self, worker: str, replicas: StageReplicas) -> None:
        """Has no plan yet.

        Args:
            worker: the worker's name.
            replicas: of the hub.
        """
        self._worker = worker
        self._replicas = replicas
        self._plans: dict[tuple[str, tuple[StageRoute, ...]], RoutePlan] = {}

    def of(self, graph: LoadedGraph, route: RequestRoute) -> RoutePlan:
        """Returns the plan of a route, with the replicas that the hub has now."""
        key = graph.digest, route.stages
        plan = self._plans.get(key)
        if plan is None or plan.generation != self._replicas.generation:
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            plan = self._plans[key] = self._planned(graph, route)
        return plan

    def _planned(self, graph: LoadedGraph, route: RequestRoute) -> RoutePlan:
        places = {place.stage: place for place in route.stages}
        here = {name: graph.stages[name] for name, p in places.items() if p.worker == self._worker}
        return RoutePlan(
            self._replicas.generation,
            places,
            {name: self._stage(graph, places, loaded) for name, loaded in here.items()},
            {name: frozenset(loaded.needs) for name, loaded in here.items()},
            tuple(name for name, loaded in here.items() if REQUEST in loaded.needs),
        )

    def _stage(
        self, graph: LoadedGraph, places: Mapping[str, StageRoute], loaded: LoadedStage
    ) -> StagePlan:
        name = loaded.stage.name
        replica_id = places[name].replica_id
        replica = self._replicas.replica(replica_id)
        instance = self._instance_of(replica_id)
        consumers = graph.consumers[name]
        is_stored = wants_body = wants_value = False
        for consumer in consumers:
            place, reader = places.get(consumer), graph.stages.get(consumer)
            if place is None or reader is None or not _reads_whole(reader, name):
                wants_body = True
            elif self._instance_of(place.replica_id) is instance:
                is_stored = True
            else:
                wants_value = True
        goes_on = (
            loaded.stage.is_python
            and len(consumers) == 1
            and is_stored
            and graph.stages[consumers[0]].needs <= {name, REQUEST}
        )
        return StagePlan(
            name,
            loaded,
            replica_id,
            instance,
            is_stored,
            wants_body,
            wants_value,
            tuple((c, c in places and places[c].worker == self._worker) for c in consumers),
            consumers[0] if goes_on else "",
            UNTIMED if replica is None else replica.timings.get(name, UNTIMED),
        )

    def _instance_of(self, replica_id: str) -> InstanceLink | None:
        replica = self._replicas.replica(replica_id)
        return None if replica is None else replica.instance


def _reads_whole(reader: LoadedStage, source: str) -> bool:
    return reader.stage.is_python and source not in reader.prints
