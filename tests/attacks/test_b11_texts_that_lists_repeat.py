"""Attacker: T1 and T2, tenants that create and cancel runs.
Action: cancels runs with reasons of megabytes, and gives workflows megabytes of labels.
Must not happen: lists of runs and bills, which repeat them, take the control plane's memory.
"""

from pathlib import Path
from typing import Any

from tests.attacks.by_hand import end_of, place
from tests.attacks.tenants import ADMIN, ATTACKER, SPEC, tenants
from tests.flowmesh_control.fabric import workflow

from flowmesh_control.api.runs import REASON_CHARACTERS
from flowmesh_core.accounting.charges import ALL_DAYS
from flowmesh_core.graph.limits import Limits

LABELS = {f"l{n}": "x" * 63 for n in range(20)}


def labelled(labels: dict[str, str]) -> dict[str, Any]:
    document = workflow("a", SPEC, "team-b")
    document["metadata"]["labels"] = labels
    return {"document": document}


async def test_a_run_is_not_cancelled_with_a_reason_of_many_characters(tmp_path: Path) -> None:
    async with tenants(tmp_path) as there:
        uid = await there.run(ATTACKER)
        path = f"/v1/runs/{uid}/cancel"
        for length, status in ((REASON_CHARACTERS + 1, 400), (REASON_CHARACTERS, 200)):
            body = {"reason": "x" * length}
            await there.ask(ATTACKER, "POST", path, body=body, status=status)
        await there.ended(uid)
        [listed] = await there.ask(ADMIN, "GET", "/v1/runs")
        assert len(listed["message"]) == REASON_CHARACTERS


async def test_a_workflow_of_many_labels_is_refused(tmp_path: Path) -> None:
    async with tenants(tmp_path) as there:
        many = labelled({"l": "x" * Limits().labels_bytes})
        answer = await there.ask(ATTACKER, "POST", "/v1/runs", body=many, status=422)
        [problem] = answer["error"]["problems"]
        assert problem["path"] == "metadata.labels"
        await there.ask(ATTACKER, "POST", "/v1/runs", body=labelled(LABELS), status=201)


async def test_the_charges_of_a_run_share_its_labels() -> None:
    async with place() as there:
        worker = await there.join("a")
        steps = [{**SPEC["steps"][0], "name": n, "cache": {"salt": n}} for n in ("one", "two")]
        uid = await there.submit("a", {"steps": steps}, labels=LABELS)
        given = await worker.given(2)
        await worker.sync(ended=tuple(end_of(a.attempt_id, a.action_id) for a in given))
        await there.ended(uid)
        first, second = await there.control.services.views.charges(uid, ALL_DAYS)
        assert first.labels == LABELS
        assert second.labels is first.labels
