"""Components of one affinity group are on a worker together, or not at all: at every instant."""

from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.flowmesh_core.placement.builders import signature
from tests.flowmesh_core.serving.test_replica_placement import host, ids

from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.protocol.messages import PrewarmSpec
from flowmesh_core.serving.plan.component_demand import ComponentDemand, FleetView
from flowmesh_core.serving.plan.replica_placement import ServingPlan, plan_replicas

GROUP = ("embed", "search", "rerank")


def demand(component: str, memory_mib: int = 1000, wanted: int = 1, **more: Any) -> ComponentDemand:
    info = signature(component, memory_mib=memory_mib)
    opening = PrewarmSpec(info.signature, "llm.generate", 1, 1, memory_mib=memory_mib)
    values = {"affinity": "docs" if component in GROUP else "", **more}
    return ComponentDemand("t/ask", component, "r1", info, opening, wanted, **values)


def held(plan: ServingPlan) -> dict[str, list[str]]:
    return ids(plan)


def components(plan: ServingPlan) -> dict[str, set[str]]:
    """Returns the components of the group by worker."""
    return {
        worker: {r.component for r in replicas if r.component in GROUP}
        for worker, replicas in plan.workers.items()
    }


def test_a_group_goes_to_a_worker_that_has_room_for_all_of_it() -> None:
    fleet = FleetView([host("cheap", memory_mib=2500, price_nanousd_per_hour=1), host("large")])
    plan = plan_replicas([demand(c) for c in GROUP], fleet)
    assert components(plan) == {"large": set(GROUP)}
    apart = plan_replicas([replace(demand(c), affinity="") for c in GROUP], fleet)
    assert len(components(apart)) == 2, "without affinity the group is divided"


def test_a_group_without_room_says_so_and_has_a_large_enough_pool_grow() -> None:
    demands = [demand(c) for c in GROUP]
    plan = plan_replicas(demands, FleetView([host("w", memory_mib=2500)]))
    assert plan.workers == {}
    assert plan.reasons["t/ask", "search"] == (
        "no worker has 3000 MiB free for it (embed, search, rerank are loaded together, by affinity"
        " 'docs'); attempts and other replicas have the rest"
    )
    shape = host("w", memory_mib=2500).shape
    small, large = (
        PoolView(n, msgspec.structs.replace(shape, pool=n, device_memory_mib=mib), maximum=2)
        for n, mib in (("small", 2500), ("large", 4000))
    )
    grown = plan_replicas(demands, FleetView([], pools=[small, large]))
    assert grown.floors == {"large": 1}


def test_a_worker_that_has_a_part_of_a_group_gets_the_rest_or_loses_it() -> None:
    part = {"w": ["t/ask/embed/r1/0"]}
    demands = [demand(c) for c in GROUP]
    pinned = {"w": {demands[0].info.signature}}
    room = FleetView([host("w", memory_mib=3000)], held=part)
    assert components(plan_replicas(demands, room)) == {"w": set(GROUP)}
    full = FleetView([host("w", memory_mib=1500)], held=part, pinned=pinned)
    assert plan_replicas(demands, full).workers == {}


ROUND = st.tuples(
    st.lists(st.integers(500, 5000), min_size=3, max_size=3),
    st.sets(st.sampled_from(["w0", "w1", "w2"])),
    st.integers(1, 3),
)


@settings(deadline=None)
@given(st.lists(st.integers(200, 1500), min_size=4, max_size=4), st.lists(ROUND, min_size=1))
def test_at_every_instant_a_worker_has_the_whole_group_or_none_of_it(
    sizes: list[int], rounds: list[tuple[list[int], set[str], int]]
) -> None:
    before: dict[str, list[str]] = {}
    for memory, leaving, wanted in rounds:
        demands = [demand(c, mib, wanted) for c, mib in zip((*GROUP, "writer"), sizes, strict=True)]
        workers = [host(f"w{n}", memory_mib=mib) for n, mib in enumerate(memory)]
        plan = plan_replicas(demands, FleetView(workers, leaving=leaving, held=before))
        assert all(there in (set(), set(GROUP)) for there in components(plan).values())
        before = held(plan)
