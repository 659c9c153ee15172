"""A result stays valid as long as the policy of any of its subscribers wants it."""

import pytest
from tests.flowmesh_core.machine.world import MAP, World, dataset, plan, rows_of, step

from flowmesh_core.graph.plan import Plan
from flowmesh_core.machine.events import Submitted
from flowmesh_core.sharing.scopes import ScopePlan

DAY_S = 86_400.0
DEFAULT_S = 30 * DAY_S


def submit(world: World, made: Plan, ttl_s: float | None, **changes: object) -> str:
    """Submits a run whose namespace has a policy of one group with this ``ttl``."""
    uid, own = f"run-{made.namespace}", f"ns-{made.namespace}"
    scopes = ScopePlan("group-x", (own, "group-x"), own, ttl_s=ttl_s)
    world.apply(Submitted(uid, made, world.now, scopes, changes.get("artifacts", {})))  # type: ignore[arg-type]
    return uid


@pytest.mark.parametrize(
    ("ttls", "lasts_s"),
    [
        ((None,), DEFAULT_S),
        ((DAY_S,), DAY_S),
        ((90 * DAY_S,), 90 * DAY_S),
        ((DAY_S, 7 * DAY_S), 7 * DAY_S),
        ((7 * DAY_S, DAY_S), 7 * DAY_S),
        ((DAY_S, None), DEFAULT_S),
        ((90 * DAY_S, None), 90 * DAY_S),
    ],
)
def test_a_result_is_retained_for_the_longest_ttl_of_its_subscribers_policies(
    ttls: tuple[float | None, ...], lasts_s: float, world: World
) -> None:
    for n, ttl_s in enumerate(ttls):
        submit(world, plan(step("a"), namespace=f"team-{n}"), ttl_s)
    world.join("w")
    world.run()
    (result,) = world.cache.values()
    assert result.expires_s - result.created_s == lasts_s


def test_a_step_level_result_is_retained_for_the_ttl_of_the_runs_policy(world: World) -> None:
    rows = dataset("one", "two")
    made = plan(step("m", rows_of(rows), uses=MAP))
    submit(world, made, DAY_S, artifacts={f"cas:{rows.blob}": rows})
    world.join("w")
    world.run()
    assert len(world.cache) == 3
    assert {r.expires_s - r.created_s for r in world.cache.values()} == {DAY_S}
