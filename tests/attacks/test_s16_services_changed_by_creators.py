"""Attacker: T2, a user who may create services in a namespace that is shared, and change none.
Action: creates a service with the name of an existing one and another content.
Must not happen: the existing service gets other content, a new release, or another generation.
"""

from pathlib import Path
from typing import Any

from tests.attacks.tenants import tenants
from tests.attacks.test_s1_services_of_others import PATH, body
from tests.flowmesh_control.rights import EDIT

OWNER, CREATOR = "owner", "creator"
RIGHTS = {
    OWNER: {"team-a/flowmeshservices": EDIT},
    CREATOR: {"team-a/flowmeshservices": frozenset({"create", "get"})},
}


def changed(**fields: Any) -> dict[str, Any]:
    found = body("team-a")
    found["document"]["spec"]["components"]["llm"]["with"] = fields
    return found


async def test_who_may_create_services_changes_no_existing_one(tmp_path: Path) -> None:
    async with tenants(tmp_path, RIGHTS) as fabric:
        made = await fabric.ask(OWNER, "POST", "/v1/services", body=body("team-a"))
        wanted = changed(dtype="float32")
        refused = await fabric.ask(CREATOR, "POST", "/v1/services", body=wanted, status=403)
        assert "update" in refused["error"]["message"]
        assert (await fabric.ask(CREATOR, "GET", PATH))["generation"] == made["generation"]
        same = await fabric.ask(CREATOR, "POST", "/v1/services", body=body("team-a"))
        assert same["generation"] == made["generation"], "equal content changes nothing"

        own = body("team-a")
        own["document"]["metadata"]["name"] = "own"
        created = await fabric.ask(CREATOR, "POST", "/v1/services", body=own)
        assert created["name"] == "own"
        again = await fabric.ask(OWNER, "POST", "/v1/services", body=wanted)
        assert again["generation"] == made["generation"] + 1
