"""The route of a request: which replica runs each stage, fixed when the request arrives.

All that send a value to a stage read the same route, so they agree on the stage's place, and a join
has all its values at one hub. What is lost with a worker is routed again, under a higher version.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import msgspec

from flowmesh_core.stages.keyed_choice import choose_by_key
from flowmesh_core.stages.service_graph import LoadedGraph


class StageRoute(msgspec.Struct, frozen=True, array_like=True):
    """Where a stage runs.

    Attributes:
        worker: whose hub has the replica.
        arity: how many values its join has.
    """

    stage: str
    component: str
    replica_id: str
    worker: str
    arity: int


class RequestRoute(msgspec.Struct, frozen=True, array_like=True):
    """Where all stages of a request run.

    Attributes:
        version: 1 for the first route of a request; higher ones replace lower ones.
        stages: in the graph's order.
    """

    version: int
    stages: tuple[StageRoute, ...]

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers that it uses, without repetition."""
        return tuple(dict.fromkeys(stage.worker for stage in self.stages))

    def place(self, stage: str) -> StageRoute | None:
        """Returns where a stage runs; None for one that is not in the graph."""
        return next((s for s in self.stages if s.stage == stage), None)


class RouteOption(msgspec.Struct, frozen=True, gc=False):
    """A replica that could run a stage.

    Attributes:
        load: calls there per call that runs at once.
        weight: decides between equal ones, evenly over many requests.
        calls_max: calls that run at once, at least 1.
    """

    replica_id: str
    worker: str
    load: float = 0.0
    weight: int = 0
    calls_max: int = 1

    @property
    def calls(self) -> int:
        """Calls there."""
        return round(self.load * self.calls_max)


class NoReplicaError(Exception):
    """No replica of a component is left.

    Attributes:
        component: of the service.
    """

    def __init__(self, component: str) -> None:
        super().__init__(component)
        self.component = component


def route_request(
    graph: LoadedGraph,
    options: Mapping[str, Sequence[RouteOption]],
    version: int,
    avoided: Collection[str] = (),
    keys: Mapping[str, str] = MappingProxyType({}),
) -> RequestRoute:
    """Returns the route of a request.

    Stages of one affinity group run on one worker, which has replicas of all its components. While
    there is room, a stage goes to a worker that has most of its inputs; among these to one
    with replicas of most components, and which the route uses already; then to the least loaded.
    A stage of a component with a key goes to the key's replica instead (``choose_by_key``).

    Args:
        graph: of the service.
        options: by component.
        version: of the route.
        avoided: replicas that have refused or lost the request.
        keys: of the request, by component.

    Raises:
        NoReplicaError: a component has none that may be used.
    """
    places: dict[str, str] = {}
    found = []
    groups: dict[str, str] = {}
    components = Counter(w for some in options.values() for w in {o.worker for o in some})
    for name, loaded in graph.stages.items():
        component = loaded.stage.component
        left = [o for o in options.get(component, ()) if o.replica_id not in avoided]
        group = loaded.stage.affinity
        if group in groups:
            left = [o for o in left if o.worker == groups[group]]
        elif group:
            left = _of_whole_groups(left, graph, group, options, avoided)
        if not left:
            raise NoReplicaError(component)
        sources = [places[source] for source in loaded.needs if source in places]
        keyed = choose_by_key(left, keys[component]) if component in keys else None
        best = keyed or min(left, key=lambda o: _rank(o, sources, components[o.worker], places))
        places[name] = best.worker
        if group:
            groups[group] = best.worker
        arity = len(loaded.needs)
        found.append(StageRoute(name, component, best.replica_id, best.worker, arity))
    return RequestRoute(version, tuple(found))


def _of_whole_groups(
    left: Sequence[RouteOption],
    graph: LoadedGraph,
    group: str,
    options: Mapping[str, Sequence[RouteOption]],
    avoided: Collection[str],
) -> list[RouteOption]:
    """Returns the options whose worker has replicas of all components of an affinity group.

    Each has the load of the busiest of them there.
    """
    loads = [
        {o.worker: o.load for o in options.get(component, ()) if o.replica_id not in avoided}
        for component in graph.groups[group]
    ]
    return [
        msgspec.structs.replace(o, load=max(load[o.worker] for load in loads))
        for o in left
        if all(o.worker in load for load in loads)
    ]


def _rank(
    option: RouteOption, sources: Sequence[str], components: int, places: Mapping[str, str]
) -> tuple[bool, int, int, bool, float, int, str]:
    remote = sum(worker != option.worker for worker in sources)
    is_new = option.worker not in places.values()
    load = (option.load, option.weight, option.replica_id)
    return option.load >= 1, remote, -components, is_new, *load
