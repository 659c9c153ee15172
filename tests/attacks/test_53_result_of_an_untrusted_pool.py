"""Attacker: T3.
Action: says in its Hello that its pool is trusted, and offers everything, to compute for a group.
Must not happen: a result of its own is stored in, or given from, a scope that asks for more trust.
"""

from collections.abc import AsyncIterator

import pytest
from tests.attacks.by_hand import Place, end_of, noop, place

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_core.protocol.messages import Assignment

TRUST = {"good": 2, "low": 0}
GROUP = CachePolicy("g", Sharing.GROUP, "x", namespaces=("team-a",))


@pytest.fixture
async def there() -> AsyncIterator[Place]:
    async with place(lambda pool: TRUST[pool]) as found:
        yield found


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    for pool, trust in TRUST.items():
        monkeypatch.setitem(TRUST, pool, trust)


def honest(assignment: Assignment) -> dict[str, object]:
    return {"ended": (end_of(assignment.attempt_id, assignment.action_id),)}


async def test_an_untrusted_worker_gets_no_action_of_a_group_whatever_trust_it_declares(
    there: Place,
) -> None:
    await there.control.services.policies.put(GROUP)
    hostile = await there.join("hostile", "low", shape={"trust": 3})
    uid = await there.submit("w", noop())
    await there.heard(lambda: there.control.services.fleet.workers("low"))
    [joined] = there.control.services.fleet.workers("low")
    assert joined.shape.trust == 0
    owner = await there.join("owner")
    [assignment] = await owner.given()
    assert not hostile.assigned
    await owner.sync(**honest(assignment))
    assert (await there.ended(uid)).phase == "Succeeded", "the control"
    [result] = await there.published()
    assert (result.provenance.pool, result.provenance.trust) == ("good", 2)


async def test_a_result_of_an_untrusted_pool_is_not_reused_by_a_run_with_a_higher_min_trust(
    there: Place,
) -> None:
    hostile = await there.join("hostile", "low", shape={"trust": 3})
    uid = await there.submit("w", noop())
    [assignment] = await hostile.given()
    await hostile.sync(**honest(assignment))
    assert (await there.ended(uid)).phase == "Succeeded"
    strict = await there.submit("strict", {**noop(), "minTrust": 1})
    owner = await there.join("owner")
    [again] = await owner.given()
    assert again.action_id == assignment.action_id
    await owner.sync(**honest(again))
    final = await there.ended(strict)
    assert (final.phase, final.hits, final.executed) == ("Succeeded", 0, 1)
    [result] = await there.published()
    assert (result.generation, result.provenance.trust) == (2, 2)
    third = await there.ended(await there.submit("third", {**noop(), "minTrust": 2}))
    assert third.hits == 1, "the control"


async def test_a_result_is_not_stored_if_its_pool_loses_trust_while_it_runs(there: Place) -> None:
    TRUST["low"] = 1
    await there.control.services.policies.put(GROUP)
    hostile = await there.join("hostile", "low")
    uid = await there.submit("w", noop())
    [assignment] = await hostile.given()
    TRUST["low"] = 0
    there.control.services.gateway.watch()
    await hostile.sync(**honest(assignment))
    await there.heard(lambda: assignment.attempt_id in hostile.acknowledged)
    assert not await there.published()
    owner = await there.join("owner")
    [again] = await owner.given()
    await owner.sync(**honest(again))
    assert (await there.ended(uid)).phase == "Succeeded", "the control"
