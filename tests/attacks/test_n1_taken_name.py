"""Attacker: T3. Action: takes the name of a worker of another pool that is disconnected.
Must not happen: that worker's attempts are lost; it cannot come back.
"""

from collections.abc import AsyncIterator

import pytest
from tests.attacks.by_hand import Place, end_of, holding, noop, place, until

from flowmesh_core.protocol.messages import Refused, Welcome

pytestmark = pytest.mark.slow


@pytest.fixture
async def there() -> AsyncIterator[Place]:
    async with place() as found:
        yield found


async def test_a_worker_name_belongs_to_its_pool_until_the_worker_is_lost(there: Place) -> None:
    gateway = there.control.services.gateway
    honest = await there.join("w", "good-too")
    name = "good-too-w"  # a worker of the pool "good" may have it, too
    uid = await there.submit("run", noop())
    [assignment] = await honest.given()
    await honest.close()
    await until(lambda: gateway._known[name].session is None)
    for incarnation in ("another process", "process of w"):
        thief = await there.join("w", shape={"name": name}, incarnation=incarnation)
        assert isinstance(thief.answer, Refused)
        assert "another pool" in thief.answer.reason
    stranger = await there.join("w", "low", shape={"name": name})
    assert isinstance(stranger.answer, Refused)
    assert "does not begin with 'low-'" in stranger.answer.reason
    held = holding(assignment.attempt_id, token=assignment.token)
    back = await there.join("w", "good-too", attempts=held)
    assert isinstance(back.answer, Welcome)
    await until(lambda: back.kept == [assignment.attempt_id])
    await back.sync(ended=(end_of(assignment.attempt_id, assignment.action_id),))
    assert (await there.ended(uid)).phase == "Succeeded"
    [result] = await there.published()
    assert result.provenance.pool == "good-too"

    await back.sync(goodbye=True)
    await until(lambda: name not in gateway.workers)
    assert isinstance((await there.join("w", shape={"name": name})).answer, Welcome)
