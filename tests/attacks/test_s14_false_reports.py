"""Attacker: T4, a router whose process is taken over; it has the right to report, and no other.
Action: reports malformed, endless and impossible figures, and those of replicas that do not exist.
Must not happen: the control plane ends, keeps what the plan does not have, or believes figures
that no honest router would report.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from tests.attacks.tenants import ADMIN, OWNER, Tenants
from tests.attacks.test_s1_services_of_others import RIGHTS, body
from tests.flowmesh_control.fabric import control_plane
from tests.flowmesh_control.rights import EDIT, TableOfUsers

from flowmesh_core.serving.plan.request_meter import ROUTERS_MAX

ROUTER, READER = "router", "reader"
GIVEN = {
    **RIGHTS,
    ADMIN: {"*": EDIT},
    ROUTER: {"//v1/router": frozenset({"get", "post"})},
    READER: {"//v1/router": frozenset({"get"})},
}
SPACE = "?namespace=team-a"
HONEST = {"service": "team-a/ask", "came": 4, "ended": 3, "refused": 1, "latency": [1, 2]}
REPLICA = {"replica_id": "team-a/ask/llm/r1/0", "sizes": [1], "seconds": [0.1], "cap": 1}


@pytest.fixture
async def fabric(tmp_path: Path) -> AsyncIterator[Tenants]:
    control = control_plane(tmp_path, users=TableOfUsers(GIVEN))
    await control.start()
    async with ClientSession() as http:
        found = Tenants(tmp_path, control, http)
        await found.ask(OWNER, "POST", "/v1/services", body=body("team-a"))
        yield found
    await control.stop()


async def report(fabric: Tenants, *services: Any, router: str = "r1", **given: Any) -> Any:
    document = {"router": router, "age_s": 1.0, "services": services}
    return await fabric.ask(ROUTER, "POST", "/v1/router", body=document, **given)


async def ended(fabric: Tenants) -> int:
    """Returns how many requests the service's owner sees as ended."""
    shown = await fabric.ask(OWNER, "GET", f"/v1/services/ask{SPACE}")
    return int(shown["requests"].get("ended", 0))


async def test_a_malformed_report_ends_nothing_and_changes_nothing(fabric: Tenants) -> None:
    for services in (
        ["no object"],
        [{"service": 7}],
        [{**HONEST, "came": "many"}],
        [{**HONEST, "came": 1e300}],
        [{**HONEST, "latency": [[1]]}],
    ):
        await report(fabric, *services, status=400)
    for service in (
        {**HONEST, "missed": 4},
        {**HONEST, "came": 1},
        {**HONEST, "came": -4, "ended": -3},
        {**HONEST, "latency": [1] * 500},
        {**HONEST, "service": "team-b/unknown"},
    ):
        assert await report(fabric, service) == {"ignored": 1}
    assert await report(fabric, HONEST, router="x" * 1_000) == {"ignored": 1}
    assert await ended(fabric) == 0
    assert await report(fabric, HONEST) == {}
    assert await ended(fabric) == 3, "an honest report counts"


async def test_what_the_plan_does_not_have_is_not_kept(fabric: Tenants) -> None:
    invented = [{**REPLICA, "replica_id": f"team-a/ask/llm/r1/{n}"} for n in range(5_000)]
    assert await report(fabric, {**HONEST, "replicas": invented}) == {"ignored": 5_000}
    many = [{**HONEST, "service": f"team-b/s{n}"} for n in range(5_000)]
    assert await report(fabric, *many) == {"ignored": 5_000}
    loads = fabric.control.services.replica_planner.loads
    assert not loads._profiles
    assert loads._meter._slices.keys() == {"team-a/ask"}
    assert await ended(fabric) == 3, "the rest of the report counts"


async def test_invented_routers_are_bounded(fabric: Tenants) -> None:
    await report(fabric, HONEST, router="honest")
    for number in range(ROUTERS_MAX - 1):
        await report(fabric, router=f"invented-{number}")
    await report(fabric, router="one-more", status=409)
    assert await report(fabric, {**HONEST, "came": 9, "ended": 8}, router="honest") == {}
    assert await ended(fabric) == 8


async def test_reports_need_a_right_of_their_own(fabric: Tenants) -> None:
    document = {"router": "r1", "age_s": 1.0, "services": [HONEST]}
    for who in (OWNER, READER):
        await fabric.ask(who, "POST", "/v1/router", body=document, status=403)
    assert await ended(fabric) == 0
    await fabric.ask(READER, "GET", "/v1/router")
