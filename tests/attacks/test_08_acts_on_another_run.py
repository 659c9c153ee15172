"""Attacker: T2, a tenant with a token of the API; without rights on a run, or with those to look.

Action: cancels, deletes, amends, repins, audits and resumes another tenant's run, by its uid or
its name.
Must not happen: the run changes, or the answer tells one without rights that it exists.
"""

from pathlib import Path
from typing import Any

from tests.attacks.tenants import ADMIN, ATTACKER, OWNER, tenants
from tests.flowmesh_control.rights import EDIT, VIEW

ACTS: dict[str, dict[str, Any]] = {
    "cancel": {"reason": "mine now"},
    "amend": {"priority": 3},
    "repin": {},
    "audit": {"share": 1.0},
    "resume": {},
}
VIEWER = "viewer"
RIGHTS = {
    ADMIN: {"*": EDIT},
    OWNER: {"team-a": EDIT},
    ATTACKER: {"team-b": EDIT},
    VIEWER: {"team-b": EDIT, "team-a": VIEW},
}


async def test_a_run_of_another_namespace_cannot_be_changed(tmp_path: Path) -> None:
    async with tenants(tmp_path, RIGHTS) as fabric:
        uid = await fabric.run(OWNER, name="nightly")
        before = await fabric.ask(OWNER, "GET", f"/v1/runs/{uid}")
        for act, body in ACTS.items():
            for name in (uid, "nightly"):
                path = f"/v1/runs/{name}/{act}"
                status = 403 if act == "resume" else 404  # only administrators resume any run
                told = await fabric.ask(ATTACKER, "POST", path, body=body, status=status)
                absent = f"/v1/runs/nothing/{act}"
                other = await fabric.ask(ATTACKER, "POST", absent, body=body, status=status)
                assert told["error"]["message"] == other["error"]["message"].replace(
                    "nothing", name
                )
                refused = await fabric.ask(VIEWER, "POST", path, body=body, status=403)
                assert "may not" in refused["error"]["message"]
        for name in (uid, "nightly"):
            told = await fabric.ask(ATTACKER, "DELETE", f"/v1/runs/{name}", status=404)
            assert told["error"]["message"] == f"there is no run {name!r}"
            await fabric.ask(VIEWER, "DELETE", f"/v1/runs/{name}", status=403)
        assert await fabric.ask(OWNER, "GET", f"/v1/runs/{uid}") == before
        amended = await fabric.ask(OWNER, "POST", f"/v1/runs/{uid}/amend", body=ACTS["amend"])
        assert amended["uid"] == uid
        await fabric.ask(OWNER, "POST", f"/v1/runs/{uid}/cancel", body=ACTS["cancel"])
        assert (await fabric.ended(uid)).phase == "Cancelled"


async def test_a_name_never_means_another_tenant_s_later_run(tmp_path: Path) -> None:
    async with tenants(tmp_path, RIGHTS) as fabric:
        own = await fabric.run(ATTACKER, name="nightly")
        theirs = await fabric.run(OWNER, name="nightly")  # the later one
        fabric.token = f"{ATTACKER}-token"
        assert (await fabric.call("GET", "/v1/runs/nightly"))["uid"] == own
        await fabric.ask(ATTACKER, "POST", "/v1/runs/nightly/cancel", body={})
        assert (await fabric.ended(own)).phase == "Cancelled"
        assert (await fabric.ask(OWNER, "GET", f"/v1/runs/{theirs}"))["phase"] == "Running"
