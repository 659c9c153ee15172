"""Attacker: T7. Action: writes, changes, moves and deletes records in the bucket: results, ends of
runs, requests to cancel, policies, the list of keys. Must not happen: a record is believed that the
control plane did not write; one of them hides other runs or stops the control plane.
"""

from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.attacks.by_hand import KEY, Place, control_on, end_of, noop, place

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_control.records.current_keys import LostKeyError
from flowmesh_control.records.keys import CURRENT_KEYS, cancelled_key, final_key, policy_key
from flowmesh_control.records.run_records import UNREADABLE
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_core.sharing.seals import SEAL_BYTES, Seals
from flowmesh_store.keys import action_key
from flowmesh_store.ports import Record


@pytest.fixture
async def there() -> AsyncIterator[Place]:
    async with place() as found:
        yield found


async def run_once(there: Place, name: str) -> str:
    """Runs a workflow of one step; returns the run."""
    worker = await there.join("w" + name)
    uid = await there.submit(name, noop())
    [assignment] = await worker.given()
    await worker.sync(ended=(end_of(assignment.attempt_id, assignment.action_id),))
    assert (await there.ended(uid)).phase == "Succeeded"
    return uid


async def read(there: Place, key: str) -> Record:
    record = await there.store.records.read(key)
    assert record is not None
    return record


async def put(there: Place, key: str, data: bytes) -> None:
    """Writes as somebody with the bucket's credentials."""
    found = await there.store.records.read(key)
    await there.store.records.write(key, data, if_match=None if found is None else found.etag)


def refusals(there: Place) -> dict[str, int]:
    return dict(there.control._store_meter.refused)


async def result_key(there: Place) -> str:
    [key] = [key async for key in there.store.records.keys("actions/")]
    return key


async def test_a_sealed_result_is_a_hit_for_the_next_run(there: Place) -> None:
    await run_once(there, "first")
    status = await there.ended(await there.submit("again", noop()))
    assert (status.executed, status.hits) == (0, 1)
    assert refusals(there) == {}


@pytest.mark.parametrize(
    "how", ["unsealed", "changed", "foreign key", "other scope", "other action"]
)
async def test_a_forged_result_is_a_miss_and_is_replaced(there: Place, how: str) -> None:
    await run_once(there, "first")
    key = await result_key(there)
    sealed = (await read(there, key)).data
    content = sealed[:-SEAL_BYTES]
    _, scope, action_id = key.split("/")
    forged = {
        "unsealed": content,
        "changed": sealed.replace(b'"flowmesh', b'"FLOWMESH').replace(
            b'"test.noop"', b'"test.nooq"'
        ),
        "foreign key": Seals(KeyRing.of(b"x" * 32)).seal(key, content),
        "other scope": Seals(KEY).seal(action_key("ns-other", action_id), content),
        "other action": Seals(KEY).seal(action_key(scope, "0" * 64), content),
    }[how]
    assert forged != sealed
    await put(there, key, forged)
    worker = await there.join("again")
    uid = await there.submit("again", noop())
    [assignment] = await worker.given()
    await worker.sync(ended=(end_of(assignment.attempt_id, assignment.action_id),))
    status = await there.ended(uid)
    assert (status.executed, status.hits) == (1, 0)
    assert refusals(there) == {"unsealed" if how == "unsealed" else "wrong": 2}
    metrics = (await there.get("/metrics")).decode()
    assert "flowmesh_store_records_refused_total{" in metrics
    assert (await there.ended(await there.submit("third", noop()))).hits == 1


async def test_a_result_sealed_with_an_unknown_key_stays_and_the_remedy_is_shown(
    there: Place,
) -> None:
    await run_once(there, "first")
    key = await result_key(there)
    sealed = (await read(there, key)).data
    await put(there, key, Seals(KeyRing((("07", b"x" * 32),))).seal(key, sealed[:-SEAL_BYTES]))
    uid = await there.submit("again", noop())
    health = there.control._started().health
    await there.heard(lambda: "master key 07" in health.text)
    assert there.alive
    await put(there, key, sealed)  # restored
    assert (await there.ended(uid)).hits == 1


async def test_a_forged_end_hides_no_other_run(there: Place) -> None:
    bad, good = await run_once(there, "bad"), await there.submit("good", noop())
    await there.ended(good)
    sealed = (await read(there, final_key(bad))).data
    await put(there, final_key(bad), sealed.replace(b"Succeeded", b"Failed   "))
    await there.control.stop()
    for key in [key async for key in there.store.records.keys("ended/")]:
        await there.store.sweepable_records.delete(key, older_than_s=0.0)
    there.control = control_on(there.store)
    await there.control.start()
    listed = {run.uid: run for run in there.control.services.views.summaries()}
    assert listed[good].phase == "Succeeded"
    assert listed[bad].phase == UNREADABLE
    assert "its seal is not valid" in listed[bad].message


async def test_a_forged_request_to_cancel_cancels_nothing(there: Place) -> None:
    uid = await there.submit("a", noop())
    await put(there, cancelled_key(uid), b'{"time_s": 1.0, "reason": "forged"}')
    await there.lead_anew()
    worker = await there.join("w")
    [assignment] = await worker.given()
    await there.control.services.commands.cancel(uid, "by its owner")
    await there.lead_anew()
    assert (await there.ended(uid)).phase == "Cancelled"
    assert assignment.action_id


async def test_a_forged_policy_shares_nothing(there: Place) -> None:
    mine = CachePolicy("mine", Sharing.GROUP, "g", ("team-a",))
    await there.control.services.policies.put(mine)
    forged = CachePolicy("forged", Sharing.ALL, "", ("*",))
    await put(there, policy_key("forged"), msgspec.json.encode(forged))
    await there.lead_anew()
    assert there.control.services.policies.all() == [mine]


async def test_a_lost_key_prevents_the_start_and_a_restored_one_allows_it(there: Place) -> None:
    await run_once(there, "first")
    await there.control.stop()
    for ring in (KeyRing.of(b"x" * 32), KeyRing((("01", b"x" * 32),))):
        lost = control_on(there.store, ring)
        with pytest.raises(LostKeyError, match="fmesh keys adopt --lose-results"):
            await lost.start()
        await lost.stop()
    there.control = control_on(there.store)
    await there.control.start()
    assert (await there.ended(await there.submit("again", noop()))).hits == 1


async def test_another_key_is_refused_even_without_the_list_of_keys(there: Place) -> None:
    await there.control.stop()
    assert await there.store.sweepable_records.delete(CURRENT_KEYS, older_than_s=0.0)
    lost = control_on(there.store, KeyRing.of(b"x" * 32))
    with pytest.raises(LostKeyError, match="not sealed with this master key"):
        await lost.start()
    await lost.stop()
    there.control = control_on(there.store)
    await there.control.start()
    assert await there.store.records.read(CURRENT_KEYS) is not None
