"""Attacker: T2, a tenant that stores, uploads, pays and runs user code beyond its quota.
Action: uploads and submits more, lets steps of user code and of any engine wait for workers, and
fills every worker.
Must not happen: it gets more than its quota, or another tenant waits for it.
"""

from typing import Any

import msgspec
from tests.attacks.by_hand import HandWorker, Place, end_of, noop, place
from tests.flowmesh_control.fabric import API_TOKEN, machine_of, workflow

from flowmesh_api.v1.quotas import Quota
from flowmesh_core.catalog.builtin.code import PYTHON
from flowmesh_core.protocol.messages import EngineVersion
from flowmesh_core.units import NANO_PER_USD

ATTACKER, OWNER = "team-b", "team-a"
HEADERS = {"Authorization": f"Bearer {API_TOKEN}"}
CODE_WORKER = {
    "engines": {"code.python": PYTHON.versions, "test.noop": EngineVersion(1, 1)},
    "allows_user_code": True,
    "sandbox": "landlock",
    "device_memory_mib": 1 << 20,
}


async def bound(there: Place, **limits: Any) -> None:
    quota = Quota(name="every", namespaces=("*",), **limits)
    await there.control.services.quotas.replace_all([quota], {ATTACKER: {}, OWNER: {}})


async def submit(there: Place, namespace: str, name: str, spec: dict[str, Any]) -> str:
    body = {"document": workflow(name, spec, namespace)}
    async with there.http.post(
        f"{there.control.url}/v1/runs", json=body, headers=HEADERS
    ) as response:
        accepted = await response.json()
        assert response.status == 201, accepted
        return str(accepted["uid"])


async def why(there: Place, uid: str, step: str) -> list[dict[str, Any]]:
    """Why a step waits, once there is a reason."""
    found = list[dict[str, Any]]()

    async def read() -> None:
        answer = await there.get(f"/v1/runs/{uid}/why?step={step}")
        found[:] = msgspec.json.decode(answer)["rejections"]

    await read()
    while not found:
        await there.heard()
        await read()
    return found


def code_steps(count: int) -> dict[str, Any]:
    steps = [
        {"name": f"s{n}", "uses": "code.python", "with": {"code": f"def main(): return {n}"}}
        for n in range(count)
    ]
    return {"steps": steps}


def tenants(worker: HandWorker) -> list[str]:
    return sorted(a.tenant for a in worker.assigned.values())


async def test_calls_of_user_code_beyond_the_quota_wait_and_the_owner_s_run() -> None:
    async with place() as there:
        await bound(there, user_code_calls=1)
        worker = await there.join("one", shape=CODE_WORKER)
        uid = await submit(there, ATTACKER, "many", code_steps(6))
        await worker.given(1)
        await submit(there, OWNER, "mine", code_steps(2))
        await worker.given(2)
        (reason,) = await why(there, uid, "s5")
        assert reason["cause"] == "user-code-quota"
        assert "as many calls of user code as its quota allows (1)" in reason["detail"]
        assert tenants(worker) == [OWNER, ATTACKER]


async def test_a_tenant_fills_no_more_workers_than_its_quota_and_the_owner_gets_another() -> None:
    async with place() as there:
        await bound(there, user_code_calls=1000, workers=1)
        workers = [await there.join(name, shape=CODE_WORKER) for name in ("one", "two")]
        uid = await submit(there, ATTACKER, "many", code_steps(60))
        (reason,) = await why(there, uid, "s59")
        assert reason["cause"] == "worker-quota"
        assert f"namespace {ATTACKER} uses 1 of at most 1 workers" in reason["detail"]
        (free,) = [worker for worker in workers if not worker.assigned]
        usage = msgspec.json.decode(await there.get(f"/v1/quota?namespace={ATTACKER}"))
        (limit,) = [one for one in usage["limits"] if one["name"] == "workers at once"]
        assert (limit["most"], limit["used"]) == (1.0, 1.0)
        await submit(there, OWNER, "mine", code_steps(1))
        await free.given(1)
        assert tenants(free) == [OWNER]


async def test_a_tenant_that_has_spent_its_day_waits_also_under_the_next_leader() -> None:
    async with place() as there:
        await bound(there, nanousd_per_day=NANO_PER_USD // 1000)
        worker = await there.join("one", shape={"price_nanousd_per_hour": 10**13})
        uid = await submit(there, ATTACKER, "dear", noop("dear"))
        (attempt,) = await worker.given()
        ends = end_of(attempt.attempt_id, attempt.action_id, token=attempt.token)
        await worker.sync(ended=(ends,))
        assert (await there.ended(uid)).phase == "Succeeded"
        receipt = msgspec.json.decode(await there.get(f"/v1/runs/{uid}/receipt"))
        totals = machine_of(there.control).state.daily_spend
        paid = totals.total(ATTACKER, there.control.services.epoch.now_s())
        assert paid == receipt["paid_nanousd"] > NANO_PER_USD // 1000
        await there.lead_anew()
        await bound(there, nanousd_per_day=NANO_PER_USD // 1000)
        worker = await there.join("one")
        late = await submit(there, ATTACKER, "late", noop("late"))
        (reason,) = await why(there, late, "one")
        assert reason["cause"] == "dollar-quota"
        assert f"namespace {ATTACKER} has spent $" in reason["detail"]
        await submit(there, OWNER, "mine", noop("mine"))
        (assigned,) = await worker.given()
        assert [uid.partition("-")[0] for uid in assigned.run_uids] == ["mine"]


async def test_a_tenant_that_stores_too_much_waits_and_uploads_nothing() -> None:
    async with place() as there:
        await bound(there)
        url = f"{there.control.url}/v1/datasets?namespace="
        rows = b'{"text": "' + b"x" * 4000 + b'"}\n'
        async with there.http.post(url + ATTACKER, data=rows, headers=HEADERS) as response:
            assert response.status == 201
        stored = there.control.services.stored
        await stored.update()
        uid = await submit(there, ATTACKER, "late", noop("late"))
        await bound(there, stored_bytes=stored.used(ATTACKER) // 2)
        await stored.update()
        worker = await there.join("one")
        (reason,) = await why(there, uid, "one")
        assert reason["cause"] == "storage-quota"
        assert f"namespace {ATTACKER} stores " in reason["detail"]
        async with there.http.post(url + ATTACKER, data=rows, headers=HEADERS) as response:
            assert response.status == 403
        await submit(there, OWNER, "mine", noop("mine"))
        (assigned,) = await worker.given()
        assert [uid.partition("-")[0] for uid in assigned.run_uids] == ["mine"]
