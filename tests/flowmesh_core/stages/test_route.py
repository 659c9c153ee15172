"""Every stage has one place, where its inputs are, unless it is full there."""

import pytest
from tests.flowmesh_core.stages.lossy_network import DIAMOND

from flowmesh_core.stages.route import NoReplicaError, RouteOption, route_request


def options(**loads: float) -> dict[str, list[RouteOption]]:
    """Returns a replica of every component on each worker, with that worker's load."""
    return {
        component: [RouteOption(f"{w}/{component}", w, load) for w, load in loads.items()]
        for component in ("text", "image", "cross", "tail")
    }


def test_stages_stay_on_one_worker_while_it_has_room() -> None:
    given = options(w1=0.2, w2=0.1)
    given["image"] = [RouteOption("w1/image", "w1", 0.5)]
    route = route_request(DIAMOND, given, 1)
    assert [s.stage for s in route.stages] == ["a", "b", "c", "d"]
    assert route.workers == ("w1",)
    place = route.place("c")
    assert place is not None
    assert place.arity == 3


def test_a_full_replica_gets_a_stage_only_where_no_other_is_left() -> None:
    given = options(w1=1.5, w2=0.9)
    assert route_request(DIAMOND, given, 1).workers == ("w2",)
    again = route_request(DIAMOND, given, 2, avoided={f"w2/{c}" for c in given})
    assert (again.workers, again.version) == (("w1",), 2)


def test_a_component_without_a_replica_is_named() -> None:
    given = options(w1=0)
    with pytest.raises(NoReplicaError) as raised:
        route_request(DIAMOND, given, 1, avoided={"w1/cross"})
    assert raised.value.component == "cross"
