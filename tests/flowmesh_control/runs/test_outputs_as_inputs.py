"""Workflows read what earlier runs have published, by name at submission and then by content."""

from typing import Any

import msgspec
from tests.attacks.by_hand import Place, end_of, place
from tests.flowmesh_control.fabric import workflow

from flowmesh_api.v1.lineage import LineageWalk
from flowmesh_control.records.keys import spec_key
from flowmesh_control.records.run_records import AcceptedRecord

ROWS = [{"n": 1, "word": "one"}, {"n": 2, "word": "two"}]
FIRST: dict[str, Any] = {
    "inputs": {"rows": {"rows": ROWS}},
    "steps": [
        {"name": "one", "uses": "test.noop", "with": {"value": 1}},
        {"name": "never", "uses": "test.noop", "when": "1 > 2"},
    ],
    "outputs": {"rows": "inputs.rows", "made": "one.metrics", "nothing": "never.metrics"},
}
WAITS = {
    "steps": [{"name": "w", "uses": "test.sleep", "with": {"seconds": 9, "value": 1}}],
    "outputs": {"made": "w.metrics"},
}


def second(output: str, **more: Any) -> dict[str, Any]:
    """Reads an output as metrics."""
    step = {"name": "two", "uses": "test.noop", "inputs": {"after": "inputs.made"}}
    inputs = {"made": {"output": output, **more}}
    return {"inputs": inputs, "steps": [step], "outputs": {"again": "two.metrics"}}


async def executed(there: Place, name: str, spec: dict[str, Any], value: Any = "made") -> str:
    """Runs a workflow of which one action is executed."""
    worker = there.workers[-1]
    known = len(worker.assigned)
    uid = await there.submit(name, spec)
    attempt = (await worker.given(known + 1))[known]
    await worker.sync(ended=(end_of(attempt.attempt_id, attempt.action_id, value),))
    assert (await there.ended(uid)).phase == "Succeeded"
    return uid


async def post(there: Place, path: str, spec: dict[str, Any], namespace: str = "team-a") -> Any:
    body = {"document": workflow("later", spec, namespace)}
    headers = {"Authorization": f"Bearer {there.token}"}
    async with there.http.post(there.control.url + path, json=body, headers=headers) as response:
        return response.status, await response.json()


async def refusal(there: Place, spec: dict[str, Any], namespace: str = "team-a") -> str:
    status, told = await post(there, "/v1/plan", spec, namespace)
    assert status == 422, told
    (problem,) = told["error"]["problems"]
    return f"{problem['path']}: {problem['message']}"


async def test_an_output_is_read_by_its_content_and_the_second_run_of_it_is_a_hit() -> None:
    async with place() as there:
        await there.join("w")
        first = await executed(there, "first", FIRST)
        later = await executed(there, "later", second(f"{first}/made"), value="later")
        # Another run that made the same: what is read is its content, whoever made it.
        again = await there.submit("first", FIRST)
        assert (await there.ended(again)).hits == 1
        for output in (f"{again}/made", "first/made", f"{first[:-1]}/made"):
            hit = await there.submit("later", second(output))
            assert (await there.ended(hit)).hits == 1, output

        walked = await there.get(f"/v1/runs/{later}/lineage?name=again")
        derivations = msgspec.json.decode(walked, type=LineageWalk).derivations
        assert [(d.uid, d.step) for d in derivations] == [(later, "two"), (first, "one")]

        # The run keeps what it read: a later leader does not look it up again.
        record = await there.sealed.read(spec_key(later))
        assert record is not None
        spec = msgspec.json.decode(record.data, type=AcceptedRecord)
        assert spec.uploads["made"].startswith("cas:metrics:")
        assert spec.document["spec"]["inputs"]["made"] == {"output": f"{first}/made"}


async def test_a_name_means_the_newest_run_that_succeeded() -> None:
    async with place() as there:
        await there.join("w")
        await executed(there, "nightly", FIRST, value=1)
        other = {**FIRST, "steps": [{**FIRST["steps"][0], "with": {"value": 2}}]}
        other["outputs"] = {"made": "one.metrics"}
        newest = await executed(there, "nightly", other, value=2)
        await there.submit("nightly", {**WAITS, "suspend": True})
        later = await executed(there, "later", second("nightly/made"), value=3)
        walked = await there.get(f"/v1/runs/{later}/lineage?name=again")
        derivations = msgspec.json.decode(walked, type=LineageWalk).derivations
        assert {d.uid for d in derivations} == {later, newest}


async def test_rows_and_columns_of_an_output_are_chosen_and_checked() -> None:
    async with place() as there:
        await there.join("w")
        await executed(there, "first", FIRST)

        def reading(**more: Any) -> dict[str, Any]:
            step = {
                "name": "q", "uses": "data.sql", "inputs": {"rows": "inputs.rows"},
                "with": {"query": "select n from rows"},
            }  # fmt: skip
            return {"inputs": {"rows": {"output": "first/rows", **more}}, "steps": [step]}

        status, plan = await post(there, "/v1/plan", reading(limit=1, columns=["n"]))
        assert (status, [s["path"] for s in plan["steps"]]) == (200, ["inputs.rows", "q"])
        wrong = await refusal(there, reading(columns=["m"]))
        assert wrong.startswith("spec.inputs.rows.columns[0]: no column 'm' in the rows")
        wrong = await refusal(there, reading(columns=["word"]))
        assert wrong.startswith("spec.steps[0].with.query: ")
        wrong = await refusal(there, second("first/made", limit=1))
        assert (
            wrong
            == "spec.inputs.made.output: limit and columns belong to a dataset; this is a metrics"
        )


REFUSED = {
    "made": "'made' is not an output: expected RUN/OUTPUT; `fmesh outputs RUN` shows",
    "a/b/c": "'a/b/c' is not an output: expected RUN/OUTPUT",
    "frist/made": "there is no run 'frist' in namespace team-a; `fmesh list` lists the runs",
    "first/mad": "has no output 'mad'; did you mean 'made'?",
    "first/nothing": "has not published 'nothing': its step was skipped",
    "waits/made": "has not succeeded (Running); `fmesh watch waits-",
}


async def test_what_is_not_published_is_refused_with_the_reason_and_the_remedy() -> None:
    async with place() as there:
        await there.join("w")
        await executed(there, "first", FIRST)
        await there.submit("waits", WAITS)
        for output, said in REFUSED.items():
            found = await refusal(there, second(output))
            assert found.startswith("spec.inputs.made.output: ")
            assert said in found
        wrong_kind = await refusal(there, second("first/rows"))
        assert wrong_kind.startswith("spec.steps[0].inputs.after: ")


async def test_a_run_of_another_namespace_does_not_exist() -> None:
    async with place() as there:
        await there.join("w")
        uid = await executed(there, "first", FIRST)
        for run in (uid, "first"):
            theirs = await refusal(there, second(f"{run}/made"), "team-b")
            none = await refusal(there, second("unknown/made"), "team-b")
            assert theirs == none.replace("unknown", run)


async def test_revoked_and_collected_content_is_refused() -> None:
    async with place() as there:
        await there.join("w")
        uid = await executed(there, "first", FIRST)
        status = msgspec.json.decode(await there.get(f"/v1/runs/{uid}"))
        blob = status["outputs"]["made"].get("blob") or status["outputs"]["made"]["digest"]
        sweepable = there.store.sweepable_blobs
        scopes = [b.scope async for b in sweepable.blobs() if b.digest == blob]
        assert scopes
        for scope in scopes:
            await sweepable.delete(scope, blob, older_than_s=float("-inf"))
        gone = await refusal(there, second("first/made"))
        assert gone.startswith("spec.inputs.made.output: its content is no longer in the store; ")
        assert "repeat the run that produced it" in gone
        revoke = "/v1/revoke?namespace=team-a"
        await there.post(revoke, {"target": f"{uid}/rows"})
        wrong = await refusal(there, second("first/rows"))
        assert wrong == (
            f"spec.inputs.made.output: the content of 'rows' of run {uid} was revoked; "
            "name another run"
        )
