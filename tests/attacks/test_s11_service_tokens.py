"""Attacker: T2, a tenant with a token of its own service, and one without rights in the owner's.
Action: creates, lists and revokes tokens of the other's service, and reads the routers' list.
Must not happen: it may, a token is stored or listed as it is, or outlives its service.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import ClientSession
from tests.attacks.tenants import ADMIN, ATTACKER, OWNER, Tenants
from tests.attacks.test_s1_services_of_others import RIGHTS, body
from tests.flowmesh_control.fabric import control_plane
from tests.flowmesh_control.rights import EDIT, TableOfUsers

from flowmesh_control.settings import ControlSettings
from flowmesh_core.protocol.router_services import token_hash

TOKENS = "/v1/services/ask/tokens"
SPACE = "?namespace=team-a"
ROUTER = "router"
GIVEN = {**RIGHTS, ADMIN: {"*": EDIT}, ROUTER: {"//v1/router": frozenset({"get"})}}


async def test_tokens_of_a_service_are_its_namespaces_own(tmp_path: Path) -> None:
    settings = replace(ControlSettings(), router_url="https://routers/v1")
    control = control_plane(tmp_path, users=TableOfUsers(GIVEN), settings=settings)
    await control.start()
    try:
        async with ClientSession() as http:
            await _attack(Tenants(tmp_path, control, http))
    finally:
        await control.stop()


async def _attack(fabric: Tenants) -> None:
    await fabric.ask(OWNER, "POST", "/v1/services", body=body("team-a"))
    wanted = {"valid_s": 60.0}
    made = await fabric.ask(OWNER, "POST", TOKENS + SPACE, body=wanted)
    await fabric.ask(ATTACKER, "POST", TOKENS + SPACE, body=wanted, status=403)
    await fabric.ask(ATTACKER, "GET", TOKENS + SPACE, status=403)
    await fabric.ask(ATTACKER, "DELETE", f"{TOKENS}/{made['id']}{SPACE}", status=403)
    await fabric.ask(ATTACKER, "POST", f"{TOKENS}?namespace=team-b", body=wanted, status=404)
    for who in (ATTACKER, OWNER):
        await fabric.ask(who, "GET", "/v1/router", status=403)

    listed = await fabric.ask(OWNER, "GET", TOKENS + SPACE)
    assert [set(one) for one in listed["tokens"]] == [{"id", "created_s", "expires_s"}]
    (entry,) = await _services(fabric)
    assert entry["service"] == "team-a/ask"
    assert [t["hash"] for t in entry["tokens"]] == [token_hash(made["token"])]
    assert [t["namespace"] for t in entry["tokens"]] == ["team-a"]
    files = (f for f in fabric.root.rglob("*") if f.is_file())
    assert not [f for f in files if made["token"].encode() in f.read_bytes()]

    await fabric.ask(OWNER, "DELETE", f"{TOKENS}/{made['id']}{SPACE}")
    assert "tokens" not in (await _services(fabric))[0]
    await fabric.ask(OWNER, "POST", TOKENS + SPACE, body=wanted)
    await fabric.ask(OWNER, "DELETE", f"/v1/services/ask{SPACE}")
    assert await _services(fabric) == []
    await fabric.ask(OWNER, "POST", "/v1/services", body=body("team-a"))
    assert "tokens" not in (await _services(fabric))[0]


async def _services(fabric: Tenants) -> list[dict[str, Any]]:
    found: dict[str, Any] = await fabric.ask(ROUTER, "GET", "/v1/router")
    assert set(found.get("link_authorities", {})) == {"00"}
    services: list[dict[str, Any]] = found.get("services", [])
    return services
