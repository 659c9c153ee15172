"""Attacker: T2, a tenant with content equal to another tenant's.
Action: revokes it in the other's and in all namespaces, in its own by reference, and by digest.
Must not happen: anything of the other tenant is refused or deleted.
"""

from pathlib import Path

import msgspec
from tests.attacks.tenants import ADMIN, ATTACKER, OWNER, tenants

from flowmesh_api.v1.revocation import RevocationAnswer

ROWS = b'{"text":"equal words"}\n'


async def test_a_tenant_revokes_in_its_own_namespace_only(tmp_path: Path) -> None:
    async with tenants(tmp_path) as there:
        path = "/v1/datasets?namespace="
        theirs = await there.ask(OWNER, "POST", f"{path}team-a", data=ROWS, status=201)
        own = await there.ask(ATTACKER, "POST", f"{path}team-b", data=ROWS, status=201)
        assert theirs["digest"] == own["digest"]
        content = f"/v1/content?namespace=team-a&reference={theirs['reference']}"

        async def revoke(who: str, where: str, target: str, status: int = 200) -> bytes:
            body = {"target": target}
            path = f"/v1/revoke?namespace={where}"
            answer = await there.ask(who, "POST", path, body=body, status=status)
            return msgspec.json.encode(answer)

        await revoke(ATTACKER, "team-a", theirs["reference"], 403)
        await revoke(ATTACKER, "team-b", theirs["reference"], 403)
        unknown = await revoke(ATTACKER, "team-b", theirs["digest"], 404)
        assert b"no known run in namespace team-b used or made" in unknown
        assert b"search another namespace with -n NAMESPACE" in unknown
        await revoke(ATTACKER, "team-b&all_namespaces=1", own["reference"], 403)
        answer = msgspec.json.decode(
            await revoke(ATTACKER, "team-b", own["reference"]), type=RevocationAnswer
        )
        assert (answer.report.namespace, answer.report.deleted["blobs"]) == ("team-b", 2)
        assert (await there.answer(OWNER, content)) == (200, ROWS)
        refused = f"/v1/content?namespace=team-b&reference={own['reference']}"
        assert (await there.answer(ATTACKER, refused))[0] == 403

        # The owner revokes it in its own namespace, and stores it again.
        await revoke(OWNER, "team-a", theirs["reference"])
        assert (await there.answer(OWNER, content))[0] == 403
        await there.ask(OWNER, "POST", f"{path}team-a", data=ROWS, status=201)
        assert (await there.answer(OWNER, content)) == (200, ROWS)

        # An administrator revokes it in the namespace that the request names, or everywhere.
        await there.ask(ATTACKER, "POST", f"{path}team-b", data=ROWS, status=201)
        await revoke(ADMIN, "team-a", theirs["reference"])
        assert (await there.answer(OWNER, content))[0] == 403
        assert (await there.answer(ATTACKER, refused)) == (200, ROWS)
        await revoke(ADMIN, "team-b&all_namespaces=1", own["reference"])
        assert (await there.answer(ATTACKER, refused))[0] == 403
