"""Attacker: T1, a tenant that shares results with the owner of a secret under a policy.
Action: runs the step that the owner runs with the secret, without one: before, after, meanwhile.
Must not happen: it gets what the secret opened, or the owner gets what was made without it.
"""

import pytest
from msgspec.structs import replace
from tests.flowmesh_core.machine.world import (
    MAP,
    SOLO,
    World,
    after,
    dataset,
    metrics,
    plan,
    rows_of,
    step,
)

from flowmesh_core.graph.plan import Plan
from flowmesh_core.machine.events import ActionKey

GROUP, OWNER, OTHER = "group-x", "team-a", "team-b"
PRIVATE = {OWNER: "ns-team-a", OTHER: "ns-team-b"}
ORDERS = pytest.mark.parametrize("order", [(OWNER, OTHER), (OTHER, OWNER)], ids="-".join)


@pytest.fixture
def world() -> World:
    found = World()
    found.join("w1")
    return found


def fetching(namespace: str, *, secret: bool) -> Plan:
    """A fetch, and a step that computes from what it fetched."""
    fetch = step("fetch", uses=SOLO)
    fetch = replace(fetch, secrets=("HF_TOKEN=hf/token",)) if secret else fetch
    return plan(fetch, step("compute", *after("fetch")), namespace=namespace)


def scopes_of(world: World, engine: str) -> list[str]:
    return [s for (s, _), r in world.cache.items() if r.engine == engine]


@ORDERS
def test_a_result_made_with_a_secret_is_found_only_by_the_secrets_owner(
    world: World, order: tuple[str, str]
) -> None:
    for tenant in order:
        world.submit(fetching(tenant, secret=tenant == OWNER), share=GROUP)
        world.run()
    assert sorted(scopes_of(world, SOLO.name)) == [GROUP, PRIVATE[OWNER]]
    # Its rightful owner finds it, and the other finds what was made without the secret.
    executed = len(world.executed)
    for tenant in order:
        world.submit(fetching(tenant, secret=tenant == OWNER), share=GROUP)
        world.run()
    assert len(world.executed) == executed


@ORDERS
def test_two_owners_of_equal_secrets_do_not_share_results_made_with_them(
    world: World, order: tuple[str, str]
) -> None:
    for tenant in order:
        world.submit(fetching(tenant, secret=True), share=GROUP)
        world.run()
    assert sorted(scopes_of(world, SOLO.name)) == sorted(PRIVATE.values())


@ORDERS
def test_attempts_in_flight_are_not_merged_across_tenants(
    world: World, order: tuple[str, str]
) -> None:
    for tenant in order:
        world.submit(fetching(tenant, secret=tenant == OWNER), share=GROUP)
    world.tick(0.1)
    fetches = {a.run_uids: a for a in world.attempts() if a.engine == SOLO.name}
    if len(fetches) < len(order):  # one at a time on this worker
        for a in fetches.values():
            world.finish(a.attempt_id)
        world.tick(0.1)
        fetches |= {a.run_uids: a for a in world.attempts() if a.engine == SOLO.name}
    assert sorted(map(len, fetches)) == [1, 1]
    world.run()
    assert sorted(scopes_of(world, SOLO.name)) == [GROUP, PRIVATE[OWNER]]


def test_two_runs_of_the_owner_are_merged_in_flight(world: World) -> None:
    for _ in range(2):
        world.submit(fetching(OWNER, secret=True), share=GROUP)
    world.run()
    assert len(world.executed) == 2  # one fetch, and what was computed from it


def test_a_step_that_consumes_such_a_result_publishes_to_the_policys_scope(world: World) -> None:
    world.submit(fetching(OWNER, secret=True), share=GROUP)
    world.run()
    assert scopes_of(world, "test.noop") == [GROUP]


def test_the_step_level_result_of_a_chunked_step_stays_in_the_owners_private_scope(
    world: World,
) -> None:
    rows = dataset("one", "two")
    call = replace(step("call", rows_of(rows), uses=MAP), secrets=("API_KEY=api/key",))
    for tenant in (OWNER, OTHER):
        named = call if tenant == OWNER else step("call", rows_of(rows), uses=MAP)
        made = plan(named, namespace=tenant)
        world.submit(made, share=GROUP, artifacts=[rows])
        world.run()
    # Of each two chunks and the whole step.
    assert sorted(s for s, *_ in world.publications) == [GROUP] * 3 + [PRIVATE[OWNER]] * 3


def test_another_tenants_result_in_the_group_is_not_reused_for_the_owners_secret(
    world: World,
) -> None:
    """Whoever knows the action's name may have published lies under it in the group's scope."""
    uid = world.submit(fetching(OTHER, secret=False), share=GROUP)
    world.run()
    key = next(ActionKey(s, name) for (s, name), r in world.cache.items() if r.engine == SOLO.name)
    lie = metrics(lie=1)
    world.cache[key.scope, key.action_id] = replace(
        world.cache[key.scope, key.action_id], outputs={"metrics": lie}
    )
    owners = world.submit(fetching(OWNER, secret=True), share=GROUP)
    world.run()
    assert world.finals[uid].phase == world.finals[owners].phase == "Succeeded"
    outputs = world.ended_runs[owners].steps["fetch"].outputs
    assert outputs["metrics"] != lie
