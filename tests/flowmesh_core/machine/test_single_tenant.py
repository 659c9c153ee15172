"""A worker that cannot switch uids runs the user code of one tenant, for its life."""

from tests.flowmesh_core.machine.world import CODE, SOLO, World, plan, step

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.machine import events as e
from flowmesh_core.protocol.messages import PrewarmSpec, ServingReplica
from flowmesh_core.units import Digest

ALONE = {"allows_user_code": True, "sandbox": "landlock", "single_tenant": True}


def tenants(world: World) -> dict[str, set[str]]:
    """The tenants whose code each worker runs."""
    return {w: {a.tenant for a in held.values()} for w, held in world.held.items() if held}


def code(namespace: str, name: str = "a", **params: object) -> object:
    return plan(step(name, uses=CODE, of=namespace, **params), namespace=namespace)


def test_the_first_tenant_keeps_the_worker_and_the_other_tenant_waits_with_a_reason() -> None:
    world = World()
    world.join("w", **ALONE)
    first = world.submit(code("team-a"))  # type: ignore[arg-type]
    world.tick(1.0)
    (assignment,) = world.attempts()
    assert assignment.tenant == "team-a"
    world.finish(assignment.attempt_id)
    world.tick(1.0)
    assert world.finals[first].phase == "Succeeded"
    second = world.submit(code("team-b"))  # type: ignore[arg-type]
    world.tick(1.0)
    assert world.attempts() == []
    (rejection,) = world.machine.state.rejections
    assert (rejection.cause, rejection.code_tenant) == (RejectionCause.TENANT, "team-b")
    waiting = world.machine.state.runs[second].steps["a"]
    assert "another namespace" in waiting.wait_detail
    again = world.submit(code("team-a", more=1))  # type: ignore[arg-type]
    world.tick(1.0)
    assert tenants(world) == {"w": {"team-a"}}
    assert world.machine.state.runs[again].steps["a"].wait_detail == ""


def test_in_one_cycle_two_tenants_get_two_workers() -> None:
    world = World()
    world.join("v", "w", **ALONE)
    for namespace in ("team-a", "team-b", "team-c"):
        world.submit(code(namespace))  # type: ignore[arg-type]
        world.submit(code(namespace, more=1))  # type: ignore[arg-type]
    world.tick(1.0)
    assert sorted(map(sorted, tenants(world).values())) == [["team-a"], ["team-b"]]


def test_another_tenants_code_runs_on_another_worker_and_other_engines_are_not_bound() -> None:
    world = World()
    world.join("w", code_tenant="team-a", **ALONE)
    world.submit(code("team-b"))  # type: ignore[arg-type]
    world.submit(plan(step("x", uses=SOLO), namespace="team-b"))
    world.tick(1.0)
    assert [(a.engine, a.tenant) for a in world.attempts()] == [("test.solo", "")]
    world.join("shared", allows_user_code=True, sandbox="userns")
    world.tick(1.0)
    assert [a.tenant for a in world.held["shared"].values()] == ["team-b"]


def test_ready_actions_are_grouped_by_tenant_once_a_single_tenant_worker_joins() -> None:
    world = World()
    world.submit(code("team-b"))  # type: ignore[arg-type]
    world.tick(1.0)
    world.join("w", code_tenant="team-a", **ALONE)
    world.tick(1.0)
    assert world.attempts() == []


def test_an_idle_worker_leaves_for_a_tenant_that_has_waited() -> None:
    world = World()
    world.join("v", "w", code_tenant="team-a", **ALONE)
    world.submit(code("team-b"))  # type: ignore[arg-type]
    for _ in range(20):
        world.beat("v", "w")
        world.tick(1.0)
    assert world.drained == ["v"], "one at a time"
    world.lose("v")
    world.join("v", **ALONE)
    world.tick(1.0)
    assert tenants(world) == {"v": {"team-b"}}


def test_a_replica_of_code_gives_its_worker_to_its_namespace_and_keeps_it() -> None:
    world = World()
    world.join("w", **ALONE)
    opening = PrewarmSpec(
        Digest("ab" * 32), "code.component", 1, 1, signature_params={"namespace": "team-a"}
    )
    replica = ServingReplica("team-a/ask/rank/r1/0", "team-a/ask", "rank", "r1", opening)
    world.apply(e.ServingPlanChanged({"w": (replica,)}, ()))
    world.submit(code("team-b"))  # type: ignore[arg-type]
    for _ in range(20):
        world.beat("w")
        world.tick(1.0)
    assert world.attempts() == []
    assert world.drained == [], "it holds a replica"
    world.submit(code("team-a"))  # type: ignore[arg-type]
    world.tick(1.0)
    assert tenants(world) == {"w": {"team-a"}}


def test_below_the_pools_minimum_a_step_waits_with_level_and_remedy() -> None:
    world = World()
    weak = {"allows_user_code": True, "sandbox": "weak", "pool": "code"}
    world.join("w", sandbox_minimum="landlock", **weak)
    uid = world.submit(code("team-a"))  # type: ignore[arg-type]
    world.tick(1.0)
    waiting = world.machine.state.runs[uid].steps["a"]
    assert waiting.wait_reason == RejectionCause.SANDBOX
    assert "pool code: weak, minimum landlock" in waiting.wait_detail
    assert "lower spec.sandbox.minimum" in waiting.wait_detail
    world.join("v", sandbox_minimum="weak", **weak)
    world.tick(1.0)
    assert tenants(world) == {"v": {"team-a"}}
