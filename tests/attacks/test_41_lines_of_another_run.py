"""Attacker: T2, a tenant that shares results with others; T3, a worker that was given other work.
Action: runs a step that another tenant ran, to read what it printed; prints for attempts of others.
Must not happen: a log has a line that was printed for another tenant's run, or by another worker.
"""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.attacks.by_hand import Place, end_of, noop, place
from tests.flowmesh_control.fabric import API_TOKEN, workflow

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_api.v1.runs import StepLogLine
from flowmesh_core.protocol.messages import LogLine

SECRET, OWN = "a line that team-a's step printed", "a line of one's own"
HEADERS = {"Authorization": f"Bearer {API_TOKEN}"}


@pytest.fixture
async def there() -> AsyncIterator[Place]:
    async with place() as found:
        yield found


async def send(there: Place, method: str, path: str, body: Any) -> bytes:
    data = msgspec.json.encode(body)
    async with there.http.request(
        method, there.control.url + path, data=data, headers=HEADERS
    ) as response:
        answer = await response.read()
        assert response.status < 300, answer
        return answer


async def submit(there: Place, namespace: str, spec: dict[str, Any]) -> str:
    body = {"document": workflow("w", spec, namespace)}
    return str(msgspec.json.decode(await send(there, "POST", "/v1/runs", body))["uid"])


async def printed(there: Place, uid: str, step: str = "") -> list[str]:
    data = await there.get(f"/v1/runs/{uid}/logs" + (f"?step={step}" if step else ""))
    return [line.text for line in msgspec.json.decode(data, type=list[StepLogLine])]


@pytest.mark.parametrize("at_the_end", [False, True])
async def test_a_shared_result_brings_no_line_of_the_run_that_made_it(
    there: Place, at_the_end: bool
) -> None:
    group = CachePolicy("g", Sharing.GROUP, group="g", namespaces=("team-a", "team-b"))
    await send(there, "PUT", "/v1/policies", [group])
    worker = await there.join("honest")
    theirs = await submit(there, "team-a", noop())
    [first] = await worker.given()
    logs = () if at_the_end else (LogLine(first.attempt_id, 1.0, SECRET),)
    end = end_of(first.attempt_id, first.action_id, log=SECRET if at_the_end else "")
    await worker.sync(logs=logs, ended=(end,))
    assert (await there.ended(theirs)).phase == "Succeeded"
    other = {"name": "two", "uses": "test.noop", "with": {"value": "other"}}
    own = await submit(there, "team-b", {"steps": [*noop()["steps"], other]})
    _, second = await worker.given(2)
    await worker.sync(logs=(LogLine(second.attempt_id, 2.0, OWN),))
    await there.heard()
    assert await printed(there, own, "one") == []
    assert await printed(there, own) == [OWN]
    await worker.sync(ended=(end_of(second.attempt_id, second.action_id, "other"),))
    assert (await there.ended(own)).phase == "Succeeded"
    assert len(worker.assigned) == 2  # its first step was a hit
    assert await printed(there, own, "one") == []
    assert await printed(there, own) == [OWN]
    assert await printed(there, theirs) == [SECRET]


async def test_no_worker_prints_for_an_attempt_of_another(there: Place) -> None:
    honest = await there.join("honest")
    uid = await submit(there, "team-a", noop())
    [given] = await honest.given()
    action, _, _ = given.attempt_id.rpartition("/")
    forged = (given.attempt_id, f"{action}/1-999", f"{action}/0-1")
    for number, (name, pool) in enumerate([("thief", "low"), ("mate", "good")], 1):
        thief = await there.join(name, pool, shape={"engines": {}})
        lines = tuple(LogLine(attempt_id, 1.0, "forged") for attempt_id in forged)
        ends = tuple(end_of(i, given.action_id, log="forged", token=given.token) for i in forged)
        await thief.sync(logs=lines, ended=ends)
        await there.heard(lambda n=number: there.dropped.get("attempt-id") == 6 * n)
        assert await printed(there, uid) == []
    await honest.sync(logs=(LogLine(given.attempt_id, 1.0, OWN),))
    await honest.sync(ended=(end_of(given.attempt_id, given.action_id),))
    assert (await there.ended(uid)).phase == "Succeeded"
    assert await printed(there, uid) == [OWN]
