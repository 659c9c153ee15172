"""Every stage has one place, where its inputs are, unless it is full there."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.flowmesh_core.stages.lossy_network import DIAMOND

from flowmesh_core.stages.route import NoReplicaError, RouteOption, route_request
from flowmesh_core.stages.service_graph import LoadedGraph, ServiceGraph


def options(**loads: float) -> dict[str, list[RouteOption]]:
    """Returns a replica of every component on each worker, with that worker's load."""
    return {
        component: [RouteOption(f"{w}/{component}", w, load) for w, load in loads.items()]
        for component in ("text", "image", "cross", "tail")
    }


def test_stages_stay_on_one_worker_while_it_has_room() -> None:
    found = options(w1=0.2, w2=0.1)
    found["image"] = [RouteOption("w1/image", "w1", 0.5)]
    route = route_request(DIAMOND, found, 1)
    assert [s.stage for s in route.stages] == ["a", "b", "c", "d"]
    assert route.workers == ("w1",)
    place = route.place("c")
    assert place is not None
    assert place.arity == 3


def test_a_full_replica_gets_a_stage_only_where_no_other_is_left() -> None:
    found = options(w1=1.5, w2=0.9)
    assert route_request(DIAMOND, found, 1).workers == ("w2",)
    again = route_request(DIAMOND, found, 2, avoided={f"w2/{c}" for c in found})
    assert (again.workers, again.version) == (("w1",), 2)


def test_a_component_without_a_replica_is_named() -> None:
    found = options(w1=0)
    with pytest.raises(NoReplicaError) as raised:
        route_request(DIAMOND, found, 1, avoided={"w1/cross"})
    assert raised.value.component == "cross"


def grouped(*members: str) -> LoadedGraph:
    """Returns the diamond with an affinity group."""
    stages = tuple(
        msgspec.structs.replace(s, affinity="docs") if s.component in members else s
        for s in DIAMOND.graph.stages
    )
    return LoadedGraph(ServiceGraph(stages, DIAMOND.graph.reply))


def remote_reads(graph: LoadedGraph, loads: dict[str, dict[str, float]]) -> int:
    """Returns how many values of one request pass between workers.

    Args:
        graph: of the service.
        loads: component → worker → load of its replica there.
    """
    replicas = {
        component: [RouteOption(f"{w}/{component}", w, load) for w, load in of.items()]
        for component, of in loads.items()
    }
    route = route_request(graph, replicas, 1)
    places = {s.stage: s.worker for s in route.stages}
    edges = [
        (source, name) for name, s in graph.stages.items() for source in s.needs if source in places
    ]
    return sum(places[source] != places[name] for source, name in edges)


LOADS = st.floats(0, 2)
FLEET = st.fixed_dictionaries(
    {c: st.fixed_dictionaries({"w1": LOADS, "w2": LOADS}) for c in options(w=0)}
)


@given(FLEET)
def test_stages_of_an_affinity_group_read_nothing_from_another_worker(
    loads: dict[str, dict[str, float]],
) -> None:
    assert remote_reads(grouped(*loads), loads) == 0


def test_without_affinity_stages_read_from_other_workers_where_one_is_full() -> None:
    loads = {c: {"w1": 0.0, "w2": 0.5} for c in options(w=0)}
    loads["cross"]["w1"] = 1.0
    assert remote_reads(DIAMOND, loads) > 0
    assert remote_reads(grouped(*loads), loads) == 0


def test_a_group_that_no_worker_has_whole_has_no_replica() -> None:
    found = options(w1=0, w2=0)
    found["image"] = [RouteOption("w2/image", "w2")]
    found["cross"] = [RouteOption("w1/cross", "w1")]
    assert route_request(DIAMOND, found, 1)
    with pytest.raises(NoReplicaError):
        route_request(grouped("image", "cross"), found, 1)


def keyed_route(key: str, found: dict[str, list[RouteOption]], **keys: str) -> tuple[str, ...]:
    """Returns the workers of the stages of a request whose component ``cross`` has a key."""
    route = route_request(DIAMOND, found, 1, keys={"cross": key, **keys})
    return tuple(stage.worker for stage in route.stages)


def test_a_stage_with_a_key_goes_to_the_replica_of_its_key_wherever_its_inputs_are() -> None:
    found = {
        c: [msgspec.structs.replace(o, calls_max=8) for o in some]
        for c, some in options(w1=0, w2=0, w3=0).items()
    }
    by_key = {f"k{n}": {keyed_route(f"k{n}", found) for _ in range(3)} for n in range(40)}
    assert all(len(workers) == 1 for workers in by_key.values())
    cross = {stage[2] for stages in by_key.values() for stage in stages}
    assert cross == {"w1", "w2", "w3"}
    assert {stage[0] for stages in by_key.values() for stage in stages} == {"w1"}


def test_a_stage_with_a_key_leaves_a_replica_that_is_full_or_has_failed() -> None:
    found = {
        c: [msgspec.structs.replace(o, calls_max=8) for o in some]
        for c, some in options(w1=0, w2=0).items()
    }
    its = keyed_route("k", found)[2]
    found["cross"] = [
        msgspec.structs.replace(o, load=float(o.worker == its)) for o in found["cross"]
    ]
    assert keyed_route("k", found)[2] != its
    avoided = route_request(DIAMOND, found, 2, {f"{its}/cross"}, {"cross": "k"})
    assert avoided.stages[2].worker != its


def test_a_group_with_a_key_runs_on_one_worker_that_has_all_of_it() -> None:
    found = options(w1=0, w2=0, w3=0)
    found["cross"] = [o for o in found["cross"] if o.worker != "w3"]
    graph = grouped("image", "cross")
    workers = set()
    for n in range(40):
        keys = {"image": f"k{n}", "cross": f"k{n}"}
        by_stage = {s.component: s.worker for s in route_request(graph, found, 1, keys=keys).stages}
        assert by_stage["image"] == by_stage["cross"]
        workers.add(by_stage["image"])
    assert workers == {"w1", "w2"}
