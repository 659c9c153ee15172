"""Attacker: T3.
Action: a worker of a pool that is trusted publishes lies for a group; its messages are well-formed.
Must not happen: the group goes on reusing its lies after one of them was compared.
"""

from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.attacks.by_hand import Place, end_of, noop, place
from tests.flowmesh_control.audit.test_sampled_audits import answering, reports

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy, Verify

GROUP = CachePolicy("g", Sharing.GROUP, "x", namespaces=("team-a",), verify=Verify(sample=0.5))
LIES = 8


@pytest.fixture
async def there() -> AsyncIterator[Place]:
    async with place() as found:
        await found.control.services.policies.put(GROUP)
        yield found


async def test_after_one_lie_was_compared_none_is_reused(there: Place) -> None:
    steps = [
        {"name": f"s{n}", "uses": "test.noop", "with": {"value": f"value {n}"}} for n in range(LIES)
    ]
    liar = await there.join("liar")
    uid = await there.submit("lies", {"steps": steps})
    assignments = await liar.given(LIES)
    for name in ("b", "c"):
        await there.join(name)
    ends = (end_of(a.attempt_id, a.action_id, "a lie") for a in assignments)
    await liar.sync(ended=tuple(ends))
    await there.ended(uid)
    _, second, third = there.workers
    async with answering(second, "true"), answering(third, "true"):
        await reports(there, 2)
        status = await there.ended(await there.submit("again", {"steps": steps}))
    assert (status.hits, status.executed) == (0, LIES)
    made_by = {r.provenance.worker for r in await there.published()}
    assert made_by <= {"good-b", "good-c"}


async def test_results_that_repeat_are_reused_as_before(there: Place) -> None:
    honest = await there.join("a")
    uid = await there.submit("first", noop())
    (one,) = await honest.given()
    await there.join("b")
    await honest.sync(ended=(end_of(one.attempt_id, one.action_id, "true"),))
    await there.ended(uid)
    async with answering(there.workers[1], "true"):
        again = await there.ended(await there.submit("second", noop()))
    assert again.hits == 1
    page = msgspec.json.decode(await there.get("/v1/withheld"))
    assert page["count"] == 0
