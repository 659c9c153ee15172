"""From a submitted document to results: real store, real gateway, real workers in processes."""

import signal
from typing import Any

import msgspec
import orjson
import pytest
from tests.flowmesh_control.fabric import Fabric, machine_of, workflow
from tests.flowmesh_control.waiting import until

from flowmesh_api.v1.charges import ChargePage
from flowmesh_api.v1.fabric import FabricStatus
from flowmesh_api.v1.receipts import Receipt
from flowmesh_api.v1.runs import RunStatus

pytestmark = pytest.mark.slow

ROWS = [{"n": i, "word": f"w{i}"} for i in range(10)]
DOUBLE: dict[str, Any] = {
    "inputs": {"numbers": {"rows": ROWS}},
    "steps": [
        {
            "name": "double",
            "uses": "data.sql",
            "inputs": {"rows": "inputs.numbers"},
            "with": {"query": "select n, n * 2 as twice from rows order by n"},
        },
        {
            "name": "sum",
            "uses": "data.sql",
            "inputs": {"rows": "double.rows"},
            "with": {"query": "select sum(twice) as total from rows"},
        },
    ],
    "outputs": {"doubled": "double.rows", "total": "sum.rows"},
}


def sleeps(seconds: float, count: int = 1) -> dict[str, Any]:
    steps = [
        {"name": f"s{i}", "uses": "test.sleep", "with": {"seconds": seconds, "value": i}}
        for i in range(count)
    ]
    return {"steps": steps, "outputs": {f"o{i}": f"s{i}.metrics" for i in range(count)}}


async def rows_of(fabric: Fabric, uid: str, output: str) -> list[dict[str, Any]]:
    data = await fabric.call("GET", f"/v1/runs/{uid}/outputs/{output}")
    return [orjson.loads(line) for line in data.splitlines()]


async def accounts(fabric: Fabric) -> FabricStatus:
    return msgspec.convert(await fabric.call("GET", "/v1/fabric"), FabricStatus)


async def paid(fabric: Fabric, uid: str) -> Receipt:
    return msgspec.convert(await fabric.call("GET", f"/v1/runs/{uid}/receipt"), Receipt)


async def status_of(fabric: Fabric, uid: str) -> RunStatus:
    return msgspec.convert(await fabric.call("GET", f"/v1/runs/{uid}"), RunStatus)


async def test_a_workflow_runs_on_a_real_worker_and_gives_its_results(fabric: Fabric) -> None:
    fabric.worker("local-w1")
    uid = await fabric.submit(workflow("double", DOUBLE))
    status = await fabric.ended(uid)
    assert status.phase == "Succeeded", status
    assert await rows_of(fabric, uid, "doubled") == [{"n": i, "twice": 2 * i} for i in range(10)]
    assert await rows_of(fabric, uid, "total") == [{"total": 90}]
    assert status.executed == 2
    receipt = await paid(fabric, uid)
    assert receipt.paid_nanousd == status.paid_nanousd > 0
    fabric_status = await accounts(fabric)
    assert fabric_status.receipts_nanousd == receipt.paid_nanousd
    assert fabric_status.unsettled_nanousd == 0


async def test_the_outputs_that_a_failed_run_lists_can_be_downloaded(fabric: Fabric) -> None:
    fabric.worker("local-w1")
    spec = {
        "steps": [
            {"name": "one", "uses": "data.sql", "with": {"query": "select 1 as n"}},
            {
                "name": "bad",
                "uses": "test.fail",
                "with": {"kind": "bad-input"},
                "when": "steps.one.rows.count > 0",
            },
        ],
        "outputs": {"rows": "one.rows"},
    }
    uid = await fabric.submit(workflow("half", spec))
    status = await fabric.ended(uid)
    assert (status.phase, status.failed_step) == ("Failed", "bad")
    assert (status.outputs["rows"] or {})["rows"] == 1
    assert await rows_of(fabric, uid, "rows") == [{"n": 1}]


async def test_repeated_work_is_all_hits_and_costs_nothing(fabric: Fabric) -> None:
    fabric.worker("local-w1")
    await fabric.ended(await fabric.submit(workflow("double", DOUBLE)))
    plan = await fabric.call("POST", "/v1/plan", body={"document": workflow("double", DOUBLE)})
    assert {s["expect"] for s in plan["steps"]} == {"hit"}
    assert not any({"seconds", "joules"} & s.keys() for s in plan["steps"])
    again = await fabric.submit(workflow("double", DOUBLE))
    status = await fabric.ended(again)
    assert (status.executed, status.hits, status.paid_nanousd) == (0, 2, 0)
    assert status.saved_nanousd > 0
    assert await rows_of(fabric, again, "total") == [{"total": 90}]
    why = await fabric.call("GET", f"/v1/runs/{again}/why?step=sum")
    assert [h["hit"] for h in why["hits"]] == ["published"]


async def test_tenants_share_under_a_policy_and_not_without(fabric: Fabric) -> None:
    fabric.worker("local-w1")
    first = await fabric.ended(await fabric.submit(workflow("double", DOUBLE), namespace="a"))
    apart = await fabric.ended(await fabric.submit(workflow("double", DOUBLE), namespace="b"))
    assert (first.executed, apart.executed) == (2, 2)
    group = {"name": "g", "scope": "group", "group": "x", "namespaces": ["c", "d"]}
    await fabric.call("PUT", "/v1/policies", body=[group])
    one = await fabric.submit(workflow("slow", sleeps(0.5)), namespace="c")
    other = await fabric.submit(workflow("slow", sleeps(0.5)), namespace="d")
    ends = [await fabric.ended(uid) for uid in (one, other)]
    assert [e.executed for e in ends] == [1, 0] or sum(e.executed for e in ends) == 1
    receipts = [await paid(fabric, uid) for uid in (one, other)]
    assert abs(receipts[0].paid_nanousd - receipts[1].paid_nanousd) <= 1
    assert receipts[0].paid_nanousd > 0
    totals = await accounts(fabric)
    everything = [first.paid_nanousd, apart.paid_nanousd, *(r.paid_nanousd for r in receipts)]
    assert totals.receipts_nanousd == sum(everything)
    assert totals.bill_nanousd == totals.receipts_nanousd + totals.fabric_nanousd
    page = msgspec.convert(await fabric.call("GET", "/v1/charges"), ChargePage)
    assert sum(c.paid_nanousd for c in page.charges) == totals.receipts_nanousd
    shared = [c for c in page.charges if c.run == other]
    assert [c.paid_nanousd for c in shared] == [receipts[1].paid_nanousd]


async def test_lineage_connects_uploaded_rows_with_the_result(
    fabric: Fabric,
) -> None:
    fabric.worker("local-w1")
    lines = b"".join(orjson.dumps(r) + b"\n" for r in ROWS)
    stored = await fabric.call(
        "POST", "/v1/datasets?namespace=team-a&name=n.jsonl", data=lines, status=201
    )
    assert (stored["rows"], stored["columns"]) == (10, ["n", "word"])
    local = {**DOUBLE, "inputs": {"numbers": {"dataset": "./n.jsonl"}}}
    uploads = {"numbers": stored["reference"]}
    uid = await fabric.submit(workflow("double", local), uploads=uploads)
    await fabric.ended(uid)
    shown = await fabric.call("GET", f"/v1/runs/{uid}/outputs")
    up = await fabric.call("GET", f"/v1/lineage/{shown['total']['reference']}?direction=up")
    assert {d["step"] for d in up["derivations"]} == {"double", "sum"}
    down = await fabric.call("GET", f"/v1/lineage/{stored['digest']}?direction=down")
    assert {d["step"] for d in down["derivations"]} == {"double", "sum"}
    chained = {
        "inputs": {"rows": {"dataset": shown["doubled"]["reference"]}},
        "steps": [{**DOUBLE["steps"][1], "inputs": {"rows": "inputs.rows"}}],
        "outputs": {"total": "sum.rows"},
    }
    next_uid = await fabric.submit(workflow("chained", chained))
    assert (await fabric.ended(next_uid)).hits == 1
    up = await fabric.call("GET", f"/v1/runs/{next_uid}/lineage?name=total")
    made = [(d["uid"], d["step"]) for d in up["derivations"]]
    assert made == [(next_uid, "sum"), (uid, "double")]
    up = await fabric.call("GET", f"/v1/runs/{uid}/lineage?name=double.rows&depth=1")
    assert [d["step"] for d in up["derivations"]] == ["double"]
    rows = await fabric.call("GET", f"/v1/runs/{uid}/lineage/rows?name=total")
    assert rows["digest"] == shown["total"]["digest"]
    unknown = await fabric.call("GET", f"/v1/runs/{uid}/lineage?name=totl", status=404)
    assert unknown["error"]["message"] == "no output 'totl'; did you mean 'total'?"
    stolen = {"document": workflow("chained", chained), "namespace": "thief"}
    refused = await fabric.call("POST", "/v1/runs", body=stolen, status=422)
    assert "not valid for this namespace" in refused["error"]["message"]


async def test_all_problems_of_a_document_are_reported_at_once(fabric: Fabric) -> None:
    steps = [
        {"name": "a", "uses": "data.sq", "inputs": {"rows": "inputs.numbers"}, "with": {}},
        {"name": "b", "uses": "data.sql", "inputs": {"rows": "c.rows"}, "with": {"query": "x"}},
    ]
    wrong = workflow("wrong", {**DOUBLE, "steps": steps, "outputs": {}})
    answer = await fabric.call("POST", "/v1/runs", body={"document": wrong}, status=422)
    paths = {p["path"] for p in answer["error"]["problems"]}
    assert {"spec.steps[0].uses", "spec.steps[1].inputs.rows"} <= paths
    assert await fabric.call("GET", "/v1/runs") == []


@pytest.mark.parametrize("fabric", [{"unplaceable_after_s": 60.0}], indirect=True)
async def test_an_engine_that_no_worker_of_a_fixed_fleet_serves_is_refused_at_once(
    fabric: Fabric,
) -> None:
    step = {
        "name": "ask",
        "uses": "llm.generate",
        "inputs": {"model": "inputs.base", "rows": "inputs.numbers"},
        "with": {"prompt": "{{ n }}", "dtype": "bfloat16", "implementation": "vllm"},
    }
    inputs = {"base": {"model": "smollm2-135m-instruct"}, "numbers": {"rows": ROWS}}
    asked = workflow("bf16", {"inputs": inputs, "steps": [step], "outputs": {"r": "ask.rows"}})
    fabric.worker("local-w1")
    await until(lambda: "local-w1" in machine_of(fabric.control).state.workers)
    for path in ("/v1/plan", "/v1/runs"):
        answer = await fabric.call("POST", path, body={"document": asked}, status=422)
        [problem] = answer["error"]["problems"]
        assert problem["path"] == "spec.steps[0].with"
        assert "set with.dtype: float32 or with.batchInvariant: false" in problem["message"]


async def test_an_unfinished_run_of_the_same_document_is_resumed(fabric: Fabric) -> None:
    document = workflow("slow", sleeps(30))
    uid = await fabric.submit(document)
    again = await fabric.call("POST", "/v1/runs", body={"document": document})
    assert (again["uid"], again["resumed"]) == (uid, True)
    other = await fabric.submit(document, resume=False)
    assert other != uid
    await fabric.call("POST", f"/v1/runs/{uid}/cancel", body={"reason": "enough"})
    status = await fabric.ended(uid)
    assert (status.phase, status.message) == ("Cancelled", "enough")
    conflict = await fabric.call("POST", f"/v1/runs/{uid}/cancel", status=409)
    assert "cannot be changed" in conflict["error"]["message"]


async def test_a_run_is_cancelled_while_it_runs_and_pays_for_what_it_used(fabric: Fabric) -> None:
    fabric.worker("local-w1")
    uid = await fabric.submit(workflow("slow", sleeps(60)))
    state = machine_of(fabric.control).state
    await until(lambda: any(a.phase == "running" for a in state.attempts.values()))
    await fabric.call("POST", f"/v1/runs/{uid}/cancel")
    status = await fabric.ended(uid)
    assert status.phase == "Cancelled"
    assert status.paid_nanousd > 0
    await until(lambda: not state.attempts)
    totals = await accounts(fabric)
    assert totals.bill_nanousd == totals.receipts_nanousd + totals.fabric_nanousd


async def test_a_failed_run_names_its_failed_step_and_a_remedy(fabric: Fabric) -> None:
    fabric.worker("local-w1")
    broken = {
        **DOUBLE,
        "steps": [{**DOUBLE["steps"][0], "with": {"query": "select cast('nothing_such' as int)"}}],
        "outputs": {"doubled": "double.rows"},
    }
    status = await fabric.ended(await fabric.submit(workflow("broken", broken)))
    assert (status.phase, status.failed_step) == ("Failed", "double")
    assert "nothing_such" in status.message


async def test_a_killed_worker_is_replaced_and_the_run_continues(fabric: Fabric) -> None:
    first = fabric.worker("local-w1")
    uid = await fabric.submit(workflow("slow", sleeps(3, 4)))
    state = machine_of(fabric.control).state
    await until(lambda: any(a.phase == "running" for a in state.attempts.values()))
    first.send_signal(signal.SIGKILL)
    first.wait()
    fabric.control.services.gateway.lost("local-w1", "its process was killed")
    fabric.worker("local-w2")
    status = await fabric.ended(uid)
    assert status.phase == "Succeeded", status
    outputs = await fabric.call("GET", f"/v1/runs/{uid}/outputs")
    assert [outputs[f"o{i}"]["value"] for i in range(4)] == [{"value": i} for i in range(4)]
    totals = await accounts(fabric)
    assert totals.bill_nanousd == totals.receipts_nanousd + totals.fabric_nanousd


async def test_the_api_requires_its_token_and_names_missing_objects(fabric: Fabric) -> None:
    async with fabric.http.get(fabric.control.url + "/v1/runs") as response:
        assert response.status == 401
    async with fabric.http.get(fabric.control.url + "/healthz") as response:
        assert await response.json() == {"epoch": 1}
    missing = await fabric.call("GET", "/v1/runs/nobody", status=404)
    assert "nobody" in missing["error"]["message"]
    await fabric.call("GET", "/v1/nothing", status=404)
    metrics = await fabric.call("GET", "/metrics")
    assert b"flowmesh_leader_epoch 1.0" in metrics
    engines = {e["name"] for e in await fabric.call("GET", "/v1/engines")}
    assert {"data.sql", "test.noop"} <= engines


async def test_an_unmeetable_budget_is_refused_at_submission(fabric: Fabric) -> None:
    fabric.worker("local-w1")
    await until(lambda: machine_of(fabric.control).state.workers)
    poor = workflow("poor", {**sleeps(1, 3), "budgetUsd": "0.000000001"})
    plan = await fabric.call("POST", "/v1/plan", body={"document": poor})
    assert "budget" in plan["refusals"][0]
    answer = await fabric.call("POST", "/v1/runs?check=1", body={"document": poor}, status=402)
    assert "spec.budgetUsd" in answer["error"]["message"]


async def test_the_cache_is_counted_collected_and_purged(fabric: Fabric) -> None:
    fabric.worker("local-w1")
    await fabric.ended(await fabric.submit(workflow("double", DOUBLE)))
    stats = await fabric.call("GET", "/v1/cache/stats")
    assert [(s["scope"], s["results"] > 0) for s in stats["scopes"]] == [("ns-team-a", True)]
    swept = await fabric.call("POST", "/v1/cache/gc?dry_run=1")
    assert swept["dry_run"]
    assert swept["deleted"] == 0
    purged = await fabric.call("POST", "/v1/cache/purge", body={"scope": "ns-team-a"})
    assert purged["deleted"] == sum(s["results"] for s in stats["scopes"])
    uid = await fabric.submit(workflow("double", DOUBLE))
    status = await fabric.ended(uid)
    assert status.executed == 2
