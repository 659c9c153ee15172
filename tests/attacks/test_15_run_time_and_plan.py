"""Attacker: T2.
Action: runs and plans work that another tenant of its scope may have run, to learn who ran what.
Must not happen: under ``unattributed``, any answer names a run of another namespace, or a plan
differs because of results of other namespaces. (That a hit is quicker and cheaper is not hidden.)
"""

import asyncio

import msgspec
import pytest
from tests.flowmesh_core.machine.world import World, plan, step

from flowmesh_api.v1.enums import Disclosure, Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_api.v1.plan import Forecast
from flowmesh_control.evaluators.conditions import InlineConditions
from flowmesh_control.queries.planner import Planner
from flowmesh_control.queries.why import why_step
from flowmesh_control.runs.admission import Compiled
from flowmesh_core.graph.plan import Plan
from flowmesh_core.sharing.scopes import ScopePlan, plan_scopes
from flowmesh_core.status.projection import run_status
from flowmesh_store.action_cache import ActionCache
from flowmesh_store.memory import MemoryRecords

SHARE = "all"


def of(tenant: str) -> Plan:
    return plan(step("a"), namespace=tenant)


def all_that_a_tenant_is_shown(world: World, uid: str) -> bytes:
    """Everything that status, receipt, lineage and ``fmesh why`` are made from."""
    return msgspec.json.encode((world.finals[uid], world.ledger[uid]))


@pytest.mark.parametrize("unattributed", [True, False])
def test_a_hit_does_not_name_the_run_of_another_namespace(unattributed: bool) -> None:
    world = World()
    world.join("w1")
    world.submit(of("owner"), "owners-run", share=SHARE, unattributed=unattributed)
    world.run()
    for tenant in ("attacker", "owner"):
        world.submit(of(tenant), f"{tenant}-asks", share=SHARE, unattributed=unattributed)
        assert world.finals[f"{tenant}-asks"].hits == 1
    shown = all_that_a_tenant_is_shown(world, "attacker-asks")
    assert (b"owners-run" in shown) is not unattributed
    assert b"owners-run" in all_that_a_tenant_is_shown(world, "owner-asks")


@pytest.mark.parametrize("unattributed", [True, False])
@pytest.mark.parametrize("first", ["attacker", "owner"])
def test_work_in_flight_does_not_name_runs_of_other_namespaces(
    unattributed: bool, first: str
) -> None:
    world = World()
    world.join("w1")
    order = ["attacker", "owner"] if first == "attacker" else ["owner", "attacker"]
    for name in order:
        world.submit(of(name), f"{name}-run", share=SHARE, unattributed=unattributed)
    world.submit(of("attacker"), "attacker-too", share=SHARE, unattributed=unattributed)
    world.tick(0.1)
    [attempt] = world.attempts()
    world.begin(attempt.attempt_id)
    why = asyncio.run(why_step(world.machine.state, Views(world), "attacker-run", "a"))  # type: ignore[arg-type]
    world.run()
    shown = msgspec.json.encode(why) + all_that_a_tenant_is_shown(world, "attacker-run")
    assert (b"owner" in shown) is not unattributed
    assert b"attacker-too" in shown
    assert world.machine.state.book.unsettled_nanousd == 0


class Views:
    """Of a world whose runs are live."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def status(self, uid: str) -> object:
        return run_status(self._world.machine.state, uid, self._world.now)

    async def lines(self, uid: str) -> list[object]:
        return list(self._world.ledger.get(uid, []))


async def forecast(world: World, tenant: str, scopes: ScopePlan) -> Forecast:
    cache = ActionCache(MemoryRecords(), clock=lambda: world.now)
    for (scope, _), result in world.cache.items():
        await cache.publish(scope, result)
    planner = Planner(
        state=world.machine.state,
        cache=cache,
        clock=lambda: world.now,
        quarantine_salts=dict,
        conditions=InlineConditions(),
        pools=tuple,
    )
    return await planner.forecast(Compiled({}, of(tenant), scopes, {}, {}))


async def test_a_plan_does_not_reveal_what_other_namespaces_ran() -> None:
    policy = CachePolicy("p", Sharing.ALL, namespaces=("*",))
    scopes = plan_scopes([policy], "attacker")
    fresh, used = World(), World()
    for world in (fresh, used):
        world.join("w1")
    used.submit(of("owner"), "owners-run", share=SHARE, unattributed=True)
    used.run()
    used.machine.state.model = fresh.machine.state.model
    used.now = fresh.now
    plans = [await forecast(world, "attacker", scopes) for world in (fresh, used)]
    assert plans[0] == plans[1]
    assert plans[0].hits == 0
    own = await forecast(used, "owner", plan_scopes([policy], "owner"))
    assert own.hits == 1


@pytest.mark.parametrize(
    ("disclosures", "unattributed"),
    [
        ([None], True),
        ([Disclosure.OPEN], False),
        ([Disclosure.OPEN, Disclosure.UNATTRIBUTED], True),
        ([Disclosure.OPEN, None], True),
    ],
)
def test_the_strictest_disclosure_of_a_scopes_policies_applies_to_the_whole_scope(
    disclosures: list[Disclosure | None], unattributed: bool
) -> None:
    policies = [
        CachePolicy(f"p{n}", Sharing.ALL, namespaces=(f"team-{n}",), disclosure=d)
        for n, d in enumerate(disclosures)
    ]
    assert plan_scopes(policies, "team-0").unattributed is unattributed


def test_a_group_shows_the_names_of_its_runs_unless_its_disclosure_is_unattributed() -> None:
    group = CachePolicy("g", Sharing.GROUP, "x", ("team-a",))
    assert not plan_scopes([group], "team-a").unattributed
    quiet = msgspec.structs.replace(group, disclosure=Disclosure.UNATTRIBUTED)
    assert plan_scopes([quiet], "team-a").unattributed
