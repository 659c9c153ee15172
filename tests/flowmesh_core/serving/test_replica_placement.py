"""Replicas stay where they are, and missing ones go where they can be loaded."""

import dataclasses
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.flowmesh_core.placement.builders import lane, signature, worker

from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.fleet.snapshot import SignatureInfo, WorkerView
from flowmesh_core.protocol.messages import PrewarmSpec
from flowmesh_core.serving.plan.component_demand import ComponentDemand, FleetView
from flowmesh_core.serving.plan.missing_reason import NO_HUB
from flowmesh_core.serving.plan.replica_placement import ServingPlan, plan_replicas


def demand(service: str, wanted: int = 1, release: str = "r1", **changes: Any) -> ComponentDemand:
    """A component whose signature is named like its service, unless ``info`` is given."""
    info: SignatureInfo = changes.pop("info", None) or signature(service, memory_mib=3000)
    memory_mib = info.requirement.memory_mib
    opening = PrewarmSpec(info.signature, "llm.generate", 1, 1, memory_mib=memory_mib)
    return ComponentDemand(f"t/{service}", "llm", release, info, opening, wanted, **changes)


def host(name: str, *lanes: Any, **changes: Any) -> WorkerView:
    """A worker that can hold replicas."""
    found = worker(name, *lanes, **changes)
    return WorkerView(
        found.shape,
        found.instances,
        found.local,
        found.free_memory_mib,
        found.draining,
        serves=True,
    )


def ids(plan: ServingPlan) -> dict[str, list[str]]:
    return {w: [r.replica_id for r in replicas] for w, replicas in plan.workers.items()}


def test_a_missing_replica_goes_to_the_cheapest_worker_that_has_the_memory() -> None:
    fleet = FleetView(
        [
            host("dear", price_nanousd_per_hour=9),
            host("cheap", price_nanousd_per_hour=2),
            host("small", memory_mib=2000, price_nanousd_per_hour=1),
        ]
    )
    assert ids(plan_replicas([demand("a")], fleet)) == {"cheap": ["t/a/llm/r1/0"]}


def test_a_worker_that_has_the_engine_open_or_the_model_near_comes_first() -> None:
    info = signature("a", memory_mib=3000, components={"model": 100})
    wanted = demand("a", info=info)
    near = host("near", near={"model": "disk"}, price_nanousd_per_hour=5)
    far = host("far", price_nanousd_per_hour=1)
    assert list(ids(plan_replicas([wanted], FleetView([far, near])))) == ["near"]
    opened = host("open", lane(info), price_nanousd_per_hour=9)
    assert list(ids(plan_replicas([wanted], FleetView([far, near, opened])))) == ["open"]


def test_what_runs_stays_though_a_cheaper_worker_has_come() -> None:
    fleet = FleetView(
        [host("dear", price_nanousd_per_hour=9), host("cheap", price_nanousd_per_hour=1)],
        held={"dear": ["t/a/llm/r1/4"]},
    )
    assert ids(plan_replicas([demand("a")], fleet)) == {"dear": ["t/a/llm/r1/4"]}


def test_a_replica_of_a_worker_that_leaves_goes_elsewhere_under_another_id() -> None:
    fleet = FleetView([host("w"), host("v")], leaving={"w"}, held={"w": ["t/a/llm/r1/0"]})
    assert ids(plan_replicas([demand("a")], fleet)) == {"v": ["t/a/llm/r1/1"]}


def test_another_release_takes_the_memory_of_the_one_before_on_the_same_worker() -> None:
    info = signature("a", memory_mib=3000)
    fleet = FleetView(
        [host("w", memory_mib=3500), host("v")],
        held={"w": ["t/a/llm/r1/0"]},
        pinned={"w": {info.signature}},
    )
    plan = plan_replicas([demand("a", release="r2", info=info)], fleet)
    assert ids(plan) == {"w": ["t/a/llm/r2/0"]}


def test_services_with_one_engine_share_its_memory() -> None:
    info = signature("shared", memory_mib=3000)
    plan = plan_replicas(
        [demand("a", info=info), demand("b", info=info)], FleetView([host("w", memory_mib=3000)])
    )
    assert ids(plan) == {"w": ["t/a/llm/r1/0", "t/b/llm/r1/0"]}


def test_replicas_of_a_component_are_on_different_workers() -> None:
    plan = plan_replicas([demand("a", 3)], FleetView([host("w"), host("v")]))
    assert ids(plan) == {"v": ["t/a/llm/r1/1"], "w": ["t/a/llm/r1/0"]} or len(plan.workers) == 2
    assert "no worker has 3000 MiB free" in plan.reasons["t/a", "llm"]


def test_a_replica_takes_no_memory_from_attempts() -> None:
    busy = lane(signature("batch", memory_mib=6000), held=1)
    plan = plan_replicas([demand("a")], FleetView([host("w", busy, memory_mib=8000)]))
    assert plan.workers == {}
    assert "no worker has 3000 MiB free" in plan.reasons["t/a", "llm"]


def test_the_reason_says_what_is_missing() -> None:
    assert plan_replicas([demand("a")], FleetView([])).reasons["t/a", "llm"] == (
        "no worker is connected"
    )
    without_hub = FleetView([worker("w")])
    assert plan_replicas([demand("a")], without_hub).reasons["t/a", "llm"] == NO_HUB
    large = demand("a", info=signature("a", memory_mib=90_000))
    assert "90000 MiB" in plan_replicas([large], FleetView([host("w")])).reasons["t/a", "llm"]


def test_a_pool_grows_by_what_no_worker_can_hold() -> None:
    pool = PoolView("pool", host("any").shape, maximum=3)
    plan = plan_replicas([demand("a", 1), demand("b", 1)], FleetView([], pools=[pool]))
    assert plan.floors == {"pool": 1}, "both fit into one worker"
    assert plan.reasons["t/a", "llm"] == "waits for a worker of pool pool"
    full = host("w", lane(signature("batch", memory_mib=7000), held=1))
    plan = plan_replicas([demand("a")], FleetView([full], pools=[pool]))
    assert plan.floors == {"pool": 2}
    serving = FleetView([host("w")], held={"w": ["t/a/llm/r1/0"]}, pools=[pool])
    assert plan_replicas([demand("a")], serving).floors == {"pool": 1}


def test_a_pool_at_its_maximum_does_not_grow() -> None:
    pool = PoolView("pool", host("any").shape, maximum=1)
    full = host("w", lane(signature("batch", memory_mib=7000), held=1))
    plan = plan_replicas([demand("a")], FleetView([full], pools=[pool]))
    assert plan.floors == {}
    assert "no worker has 3000 MiB free" in plan.reasons["t/a", "llm"]


def test_a_pool_whose_workers_have_no_hub_does_not_grow() -> None:
    pool = PoolView("pool", host("any").shape, maximum=3)
    plan = plan_replicas([demand("a")], FleetView([worker("w")], pools=[pool]))
    assert plan.floors == {}
    assert plan.reasons["t/a", "llm"] == NO_HUB


def test_a_reserved_pool_holds_replicas_of_its_namespaces_only() -> None:
    fleet = FleetView([host("w")], reserved={"pool"})
    assert plan_replicas([demand("a")], fleet).workers == {}
    assert plan_replicas([demand("a", reserved_pools={"pool"})], fleet).workers != {}


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_plan_exceeds_the_free_memory_and_a_second_plan_changes_nothing(
    data: st.DataObject,
) -> None:
    sizes = st.integers(500, 4000)
    demands = [
        demand(str(n), data.draw(st.integers(1, 3)), info=signature(str(n), memory_mib=mib))
        for n, mib in enumerate(data.draw(st.lists(sizes, max_size=5)))
    ]
    workers = [
        host(f"w{n}", memory_mib=mib)
        for n, mib in enumerate(data.draw(st.lists(st.integers(1000, 9000), max_size=4)))
    ]
    plan = plan_replicas(demands, FleetView(workers))
    for one in workers:
        used = {r.opening.signature: r.opening.memory_mib for r in plan.workers.get(one.name, ())}
        assert sum(used.values()) <= one.free_memory_mib
    taken = {
        w: {r.opening.signature: r.opening.memory_mib for r in replicas}
        for w, replicas in plan.workers.items()
    }
    after = [
        WorkerView(
            w.shape, {}, {}, w.free_memory_mib - sum(taken.get(w.name, {}).values()), serves=True
        )
        for w in workers
    ]
    held = {w: [r.replica_id for r in replicas] for w, replicas in plan.workers.items()}
    again = plan_replicas(demands, FleetView(after, held=held, pinned=taken))
    assert {w: sorted(found) for w, found in ids(again).items()} == {
        w: sorted(found) for w, found in ids(plan).items()
    }
    assert again.reasons == plan.reasons


def code_demand(namespace: str, wanted: int = 1) -> ComponentDemand:
    """A component of a namespace's own code."""
    info = signature(f"code of {namespace}", memory_mib=500, user_code=True)
    opening = PrewarmSpec(info.signature, "code.component", 1, 1, memory_mib=500)
    return ComponentDemand(f"{namespace}/ask", "rank", "r1", info, opening, wanted)


def code_host(name: str, code_tenant: str = "", *, single_tenant: bool = True) -> WorkerView:
    """A worker that runs users' code."""
    shape = {"allows_user_code": True, "sandbox": "landlock", "single_tenant": single_tenant}
    return dataclasses.replace(host(name, **shape), code_tenant=code_tenant)


def test_code_of_two_namespaces_shares_no_worker_that_cannot_switch_users() -> None:
    fleet = FleetView([code_host("a"), code_host("b")])
    demands = [code_demand("team-a", 2), code_demand("team-b")]
    planned = plan_replicas(demands, fleet)
    assert ids(planned) == {"a": ["team-a/ask/rank/r1/0"], "b": ["team-a/ask/rank/r1/1"]}
    assert "runs the code of another namespace" in planned.reasons["team-b/ask", "rank"]
    shared = FleetView([code_host("a", single_tenant=False)])
    assert len(ids(plan_replicas([code_demand("team-a"), code_demand("team-b")], shared))["a"]) == 2


def test_a_worker_that_has_run_code_of_another_namespace_gets_no_replica_of_code() -> None:
    fleet = FleetView([code_host("a", "team-b"), code_host("b", "team-a")])
    assert list(ids(plan_replicas([code_demand("team-a", 2)], fleet))) == ["b"]
    held = {"a": ["team-a/ask/rank/r1/0"]}
    moved = plan_replicas([code_demand("team-a")], dataclasses.replace(fleet, held=held))
    assert list(ids(moved)) == ["b"]
