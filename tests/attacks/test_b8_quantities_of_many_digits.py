"""Attacker: T1, a tenant that may create and change workflows.
Action: writes durations and memory of hundreds of digits, which are infinity or beyond 64 bits.
Must not happen: the control plane ends, then or at its next start, or a record cannot be read.
"""

from pathlib import Path
from typing import Any

import pytest
from tests.attacks.by_hand import end_of, place
from tests.attacks.stored_services import service
from tests.attacks.tenants import ATTACKER, OWNER, SPEC, Tenants, tenants
from tests.attacks.test_61_batches_of_another import FORM, FORM_TYPE, LINE
from tests.flowmesh_control.fabric import workflow
from tests.flowmesh_control.rights import EDIT

from flowmesh_control.queries.live_runs import RunTerms
from flowmesh_core.spec.quantities import mebibytes, seconds
from flowmesh_operator.workflows.reconcile_decision import amendments

DIGITS = "9" * 400
DURATION, MEMORY = f"{DIGITS}d", f"{'9' * 280}Ti"
LONGEST, MOST = "999999999.999999999d" * 5, "999999999999.999999999Ti"
RIGHTS = {
    OWNER: {"team-a": EDIT, "team-a/flowmeshservices": EDIT},
    ATTACKER: {"team-b": EDIT, "team-b/flowmeshservices": EDIT},
}
STEPS: dict[str, dict[str, Any]] = {
    "backoff": {"retry": {"backoff": DURATION}},
    "timeout": {"timeout": DURATION},
    "maxAge": {"cache": {"maxAge": DURATION}},
    "memory": {"resources": {"memory": MEMORY}},
    "memory of very many digits": {"resources": {"memory": f"{DIGITS}Ti"}},
}


def step(**fields: Any) -> dict[str, Any]:
    return {"steps": [{**SPEC["steps"][0], **fields}]}


async def refused(there: Tenants, path: str, body: Any, status: int = 422) -> None:
    answer = await there.ask(ATTACKER, "POST", path, body=body, status=status)
    assert "expected" in answer["error"]["message"]


@pytest.mark.parametrize("fields", STEPS.values(), ids=STEPS)
async def test_a_workflow_of_such_a_quantity_is_refused(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    async with tenants(tmp_path) as there:
        document = workflow("a", step(**fields), "team-b")
        await refused(there, "/v1/runs", {"document": document})
        deadline = workflow("a", {**SPEC, "deadline": DURATION}, "team-b")
        await refused(there, "/v1/runs", {"document": deadline})
        assert await there.run(OWNER)


@pytest.mark.parametrize("changes", [{"deadline": DURATION}, {"priority": 10**30}])
async def test_no_change_of_a_run_prevents_the_next_start(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    async with tenants(tmp_path) as there:
        uid = await there.run(ATTACKER)
        answer = await there.ask(
            ATTACKER, "POST", f"/v1/runs/{uid}/amend", body=changes, status=422
        )
        assert answer["error"]["problems"]
        longest = {"deadline": LONGEST, "priority": 1_000_000, "budgetUsd": "9" * 9}
        await there.ask(ATTACKER, "POST", f"/v1/runs/{uid}/amend", body=longest)
        await there.ask(ATTACKER, "GET", f"/v1/runs/{uid}/openlineage")
    async with tenants(tmp_path) as there:
        shown = await there.ask(ATTACKER, "GET", f"/v1/runs/{uid}")
        assert (shown["phase"], shown["deadline_s"]) == ("Running", seconds(LONGEST))


def test_an_object_of_such_a_deadline_changes_no_run() -> None:
    terms = RunTerms(suspended=False, priority=0, budget_nanousd=0, deadline_s=0.0, steps=1)
    with pytest.raises(ValueError, match="not a duration"):
        amendments({"deadline": DURATION}, terms)
    assert amendments({"deadline": "1h"}, terms) == {"deadlineS": 3600.0}


async def test_the_largest_quantities_harm_nobody() -> None:
    largest = step(
        retry={"backoff": LONGEST}, cache={"maxAge": LONGEST}, resources={"memory": MOST}
    )
    async with place() as there:
        worker = await there.join("a")
        await there.submit("large", {**largest, "deadline": LONGEST})
        uid = await there.submit("usual", SPEC)
        [given] = await worker.given()
        await worker.sync(ended=(end_of(given.attempt_id, given.action_id),))
        assert (await there.ended(uid)).phase == "Succeeded"
        await there.lead_anew()
        await there.get(f"/v1/runs/{uid}")
    assert mebibytes(MOST) < 2**63


async def test_a_batch_of_such_a_window_is_refused_and_the_others_are_listed(
    tmp_path: Path,
) -> None:
    async with tenants(tmp_path) as there:
        headers = {"Authorization": f"Bearer {ATTACKER}-token", "OpenAI-Project": "team-b"}
        url = f"{there.control.url}/openai/v1/"
        form = {**headers, "Content-Type": FORM_TYPE}
        async with there.http.post(url + "files", data=FORM, headers=form) as answer:
            file = (await answer.json())["id"]
        for window, status in ((DURATION, 400), ("24h", 200)):
            body = {"input_file_id": file, "endpoint": LINE["url"], "completion_window": window}
            async with there.http.post(url + "batches", json=body, headers=headers) as answer:
                assert answer.status == status, await answer.text()
        async with there.http.get(url + "batches", headers=headers) as answer:
            assert len((await answer.json())["data"]) == 1


async def test_a_service_of_such_a_latency_is_refused(tmp_path: Path) -> None:
    async with tenants(tmp_path, RIGHTS) as there:
        document = service("team-b", "smollm2-135m-instruct")
        document["spec"]["slo"] = {"latency": DURATION}
        await refused(there, "/v1/services", {"document": document})
        usual = service("team-a", "smollm2-135m-instruct")
        await there.ask(OWNER, "POST", "/v1/services", body={"document": usual})
