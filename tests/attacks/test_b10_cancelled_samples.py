"""Attacker: T2, a tenant of a group whose policy samples results, and T3, a worker that lies.
Action: cancels, suspends and deletes the sampled audit that would find the worker's lie.
Must not happen: the lie, which the whole group uses, stays unfound.
"""

from typing import Any

import msgspec
import pytest
from tests.attacks.by_hand import Place, place, until
from tests.attacks.tenants import ADMIN, ATTACKER
from tests.flowmesh_control.audit.test_sampled_audits import (
    GROUP,
    answering,
    made_by,
    reports,
    withheld,
)
from tests.flowmesh_control.rights import EDIT, TableOfUsers

RIGHTS = {ADMIN: {"*": EDIT}, ATTACKER: {"team-a": EDIT}}


def audits(there: Place) -> list[str]:
    return [r.uid for r in there.control.services.views.summaries() if r.audit_of]


async def answer_to(there: Place, who: str, method: str, path: str, body: Any = None) -> int:
    headers = {"Authorization": f"Bearer {who}-token"}
    data = None if body is None else msgspec.json.encode(body)
    url = f"{there.control.url}/v1/runs/{path}"
    async with there.http.request(method, url, headers=headers, data=data) as response:
        return response.status


async def test_a_tenant_does_not_end_the_samples_of_its_results() -> None:
    async with place(users=TableOfUsers(RIGHTS)) as there:
        there.token = f"{ATTACKER}-token"
        await there.control.services.policies.put(GROUP)
        liar = await there.join("liar")
        own = await made_by(there, liar, "a lie", ("b", "good"), ("c", "good"))
        await until(lambda: audits(there))
        [sample] = audits(there)
        assert await answer_to(there, ATTACKER, "POST", f"{sample}/cancel") == 403
        suspend = {"suspend": True}
        assert await answer_to(there, ATTACKER, "POST", f"{sample}/amend", suspend) == 403
        assert await answer_to(there, ATTACKER, "POST", f"{sample}/repin") == 403
        assert await answer_to(there, ATTACKER, "DELETE", sample) == 403
        there.token = f"{ADMIN}-token"
        _, second, third = there.workers
        async with answering(second, "made"), answering(third, "made"), answering(liar, "a lie"):
            await reports(there, 2)
        assert [r.made_by.worker for r in (await withheld(there)).results] == ["good-liar"]
        assert await answer_to(there, ATTACKER, "DELETE", sample) == 403
        assert await answer_to(there, ADMIN, "DELETE", sample) == 200
        assert await answer_to(there, ATTACKER, "DELETE", own) == 200


@pytest.mark.parametrize("who", [ATTACKER, ADMIN])
async def test_an_audit_that_was_asked_for_can_be_cancelled(who: str) -> None:
    async with place(users=TableOfUsers(RIGHTS)) as there:
        there.token = f"{who}-token"
        worker = await there.join("a")
        uid = await made_by(there, worker, "made")
        assert await answer_to(there, who, "POST", f"{uid}/audit", {"share": 1.0}) == 201
        [audit] = audits(there)
        assert await answer_to(there, who, "POST", f"{audit}/cancel") == 200
