"""Attacker: T1, a tenant that may create workflows.
Action: names outputs of a run of very many steps, or of one with very many outputs, as a thousand
inputs of a small workflow.
Must not happen: the control plane, which reads that run, answers nothing else meanwhile.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.by_hand import end_of, place
from tests.attacks.tenants import ATTACKER, SPEC, tenants
from tests.flowmesh_control.fabric import workflow

from flowmesh_control.queries import run_views
from flowmesh_control.records.reference_issuer import ReferenceIssuer
from flowmesh_control.records.run_records import summary_of, summary_of_live

INPUTS = 1000
MANY = {"suspend": True, "steps": [{**SPEC["steps"][0], "matrix": {"x": list(range(500))}}]}


def naming(*outputs: str) -> dict[str, Any]:
    inputs = {f"i{n}": {"output": output} for n, output in enumerate(outputs)}
    return {**SPEC, "inputs": inputs}


def counted(monkeypatch: pytest.MonkeyPatch, of: Any, name: str) -> Counter[str]:
    """Returns the number of calls of a function from now on, below its name."""
    calls: Counter[str] = Counter()
    function = getattr(of, name)

    def call(*arguments: Any, **more: Any) -> Any:
        calls[name] += 1
        return function(*arguments, **more)

    monkeypatch.setattr(of, name, call)
    return calls


@pytest.mark.parametrize("by_name", [False, True])
async def test_a_run_that_many_inputs_name_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_name: bool
) -> None:
    async with tenants(tmp_path) as there:
        there.token = f"{ATTACKER}-token"
        uid = await there.submit(workflow("long", MANY, "team-b"))
        calls = counted(monkeypatch, run_views, "run_status")
        outputs = [f"{'long' if by_name else uid}/o{n}" for n in range(INPUTS)]
        body = {"document": workflow("short", naming(*outputs), "team-b")}
        answer = await there.ask(ATTACKER, "POST", "/v1/runs", body=body, status=422)
        assert len(answer["error"]["problems"]) == INPUTS
        assert calls["run_status"] == 1


async def test_lists_and_names_of_runs_need_no_status_of_their_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tenants(tmp_path) as there:
        there.token = f"{ATTACKER}-token"
        uid = await there.submit(workflow("long", MANY, "team-b"))
        views = there.control.services.views
        run = views._state.runs[uid]
        assert summary_of_live(run) == summary_of(await views.status(uid))
        calls = counted(monkeypatch, run_views, "run_status")
        [listed] = await there.ask(ATTACKER, "GET", "/v1/runs")
        assert (listed["uid"], listed["steps"], listed["ended_s"]) == (uid, 500, 0.0)
        await there.ask(ATTACKER, "GET", "/v1/runs/nothing", status=404)
        assert not calls


async def test_references_are_issued_once_for_a_run_of_many_outputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with place() as there:
        worker = await there.join("a")
        outputs = {f"o{n}": "one.metrics" for n in range(INPUTS)}
        uid = await there.submit("wide", {**SPEC, "outputs": outputs})
        [given] = await worker.given()
        await worker.sync(ended=(end_of(given.attempt_id, given.action_id),))
        assert (await there.ended(uid)).phase == "Succeeded"
        calls = counted(monkeypatch, ReferenceIssuer, "issue")
        assert await there.submit("short", naming(*(f"wide/{name}" for name in outputs)))
        assert calls["issue"] == INPUTS
