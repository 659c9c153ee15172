"""Results of a worker are withheld, released, purged and made again, on a real control plane."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.attacks.by_hand import HandWorker, Place, end_of, noop, place
from tests.flowmesh_control.fabric import API_TOKEN

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_api.v1.request_log import RequestLogPage
from flowmesh_api.v1.withheld import ReleaseReport, WithheldPage, WithholdReport

GROUP = CachePolicy("g", Sharing.GROUP, "x", namespaces=("team-a", "team-b"))


@pytest.fixture
async def there() -> AsyncIterator[Place]:
    async with place() as found:
        yield found


async def post(there: Place, path: str, body: Any, status: int = 200) -> bytes:
    headers = {"Authorization": f"Bearer {API_TOKEN}"}
    url = there.control.url + path
    async with there.http.post(url, json=body, headers=headers) as response:
        content = await response.read()
        assert response.status == status, content
        return content


async def withhold(there: Place, *, options: dict[str, bool] | None = None, **results: Any) -> Any:
    body = {"results": results, **(options or {})}
    return msgspec.json.decode(await post(there, "/v1/withheld", body), type=WithholdReport)


async def serve(worker: HandWorker, value: str, answered: set[str]) -> None:
    """Ends the next attempt of a worker with this value."""
    assignments = await worker.given(len(answered) + 1)
    (one,) = [a for a in assignments if a.attempt_id not in answered]
    answered.add(one.attempt_id)
    await worker.sync(ended=(end_of(one.attempt_id, one.action_id, value),))


async def test_a_withheld_result_is_made_again_and_found_again_when_it_is_released(
    there: Place,
) -> None:
    await there.control.services.policies.put(GROUP)
    liar, answered = await there.join("liar"), set[str]()
    uid = await there.submit("first", noop())
    await serve(liar, "a lie", answered)
    await there.ended(uid)
    shown = await withhold(there, options={"dry_run": True}, worker="good-liar")
    assert (shown.read, shown.count, shown.scopes) == (1, 1, {"group-x": 1})
    again = await there.submit("second", noop())
    assert (await there.ended(again)).hits == 1

    done = await withhold(there, worker="good-liar")
    assert done.count == 1
    assert {run.uid for run in done.runs} == {uid, again}
    assert done.connected == ("good-liar",)
    await liar.close()
    honest, made = await there.join("honest"), set[str]()
    third = await there.submit("third", noop())
    await serve(honest, "the truth", made)
    assert (await there.ended(third)).hits == 0
    (published,) = await there.published()
    assert published.generation == 2
    assert published.provenance.worker == "good-honest"
    fourth = await there.submit("fourth", noop())
    assert (await there.ended(fourth)).hits == 1


async def test_it_stays_withheld_for_the_next_leader_until_it_is_released(there: Place) -> None:
    liar = await there.join("liar")
    uid = await there.submit("first", noop())
    await serve(liar, "a lie", set())
    await there.ended(uid)
    assert (await withhold(there, pool="good", since_s=1.0)).count == 1
    await liar.close()
    await there.lead_anew()
    page = msgspec.json.decode(await there.get("/v1/withheld"), type=WithheldPage)
    assert page.count == 1
    assert page.results[0].made_by.worker == "good-liar"
    (published,) = await there.published()
    cache = there.control.services.planner._cache
    assert await cache.lookup(published.action_id, ["ns-team-a"]) is None
    body = {"results": {"worker": "good-liar"}}
    released = msgspec.json.decode(
        await post(there, "/v1/withheld/release", body), type=ReleaseReport
    )
    assert released.released == 1
    assert await cache.lookup(published.action_id, ["ns-team-a"]) is not None


async def test_a_result_in_flight_to_the_store_is_hidden_too(there: Place) -> None:
    """The search may pass a key before its record is there; the selection hides it all the same."""
    liar = await there.join("liar")
    uid = await there.submit("first", noop())
    await serve(liar, "a lie", set())
    await there.ended(uid)
    (late,) = await there.published()
    scope, cache = "ns-team-a", there.control.services.planner._cache
    other = msgspec.structs.replace(late, action_id="f" * 64)
    await withhold(there, worker="good-liar")
    await cache.publish(scope, other)
    assert await cache.lookup(other.action_id, [scope]) is None


async def test_purged_results_are_gone_and_leave_nothing_withheld(there: Place) -> None:
    liar = await there.join("liar")
    uid = await there.submit("first", noop())
    await serve(liar, "a lie", set())
    await there.ended(uid)
    report = await withhold(there, options={"purge": True}, attempt=(await made_by(there)))
    assert report.purged == 1
    assert await there.published() == []
    page = msgspec.json.decode(await there.get("/v1/withheld"), type=WithheldPage)
    assert page.count == 0


async def made_by(there: Place) -> str:
    (published,) = await there.published()
    return published.provenance.attempt_id


async def test_a_rerun_makes_it_again_at_the_cost_of_the_fabric(there: Place) -> None:
    liar, answered = await there.join("liar"), set[str]()
    uid = await there.submit("first", noop())
    await serve(liar, "a lie", answered)
    paid = (await there.ended(uid)).paid_nanousd
    report = await withhold(there, options={"rerun": True}, worker="good-liar")
    (run,) = report.runs
    assert run.rerun
    await serve(liar, "the truth", answered)
    status = await there.ended(run.rerun)
    assert (status.phase, status.name, status.paid_nanousd) == ("Succeeded", "first", 0)
    (published,) = await there.published()
    assert published.outputs["metrics"].value == {"value": "the truth"}
    assert (await there.ended(uid)).paid_nanousd == paid
    book = msgspec.json.decode(await there.get("/v1/fabric"))
    parts = ("receipts_nanousd", "fabric_nanousd", "unsettled_nanousd")
    assert sum(book[part] for part in parts) == book["bill_nanousd"]


async def test_without_a_condition_nothing_is_withheld(there: Place) -> None:
    await post(there, "/v1/withheld", {"results": {}}, status=400)
    await post(
        there, "/v1/withheld", {"results": {"worker": "x"}, "dry_run": True, "purge": True}, 400
    )
    await post(there, "/v1/withheld", {"results": {"workers": "x"}}, status=400)


async def test_the_request_log_says_what_was_withheld_before_it_was(there: Place) -> None:
    await withhold(there, worker="good-liar")
    page = msgspec.json.decode(await there.get("/v1/request-log"), type=RequestLogPage)
    entries = [e for e in page.entries if e.request_uri == "/v1/withheld"]
    assert [e.stage for e in entries] == ["RequestReceived", "ResponseComplete"]
    assert entries[-1].annotations["flowmesh.dev/worker"] == "good-liar"
