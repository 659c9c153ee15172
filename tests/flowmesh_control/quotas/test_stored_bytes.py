"""What a namespace stores, in a control plane without workers."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from tests.attacks.by_hand import Place, noop, place
from tests.flowmesh_control.fabric import machine_of, workflow

from flowmesh_api.v1.quotas import Quota
from flowmesh_control.errors import QuotaExceededError
from flowmesh_control.quotas.quotas import Quotas
from flowmesh_control.quotas.stored_bytes import COUNT_EVERY_S, RECOUNT_S, StoredBytes
from flowmesh_control.runs.admission import Submission
from flowmesh_core.units import Digest
from flowmesh_store.ports import StoredBlob

ROWS = b'{"text": "' + b"x" * 4000 + b'"}\n'


async def bound(there: Place, stored_bytes: int) -> None:
    quota = Quota(name="q", namespaces=("team-b",), stored_bytes=stored_bytes)
    await there.control.services.quotas.replace_all([quota], {"team-a": {}, "team-b": {}})


async def upload(there: Place, namespace: str) -> tuple[int, bytes]:
    url = f"{there.control.url}/v1/datasets?namespace={namespace}"
    headers = {"Authorization": "Bearer api-token"}
    async with there.http.post(url, data=ROWS, headers=headers) as response:
        return response.status, await response.read()


async def test_uploads_and_submissions_beyond_the_quota_are_refused_and_others_are_served() -> None:
    async with place() as there:
        await bound(there, 1000)
        assert (await upload(there, "team-b"))[0] == 201
        await there.control.services.stored.update()
        used = there.control.services.stored.used("team-b")
        assert used > 0
        await bound(there, used)
        status, body = await upload(there, "team-b")
        assert status == 403
        assert b"namespace team-b stores " in body
        assert b"delete runs or ask an administrator" in body
        document = workflow("w", noop("w"))
        with pytest.raises(QuotaExceededError, match="namespace team-b stores") as refused:
            await there.control.services.commands.submit(Submission(document, "team-b"))
        assert refused.value.can_pass
        assert there.control.services.run_quota.available("team-b") == 0
        assert there.control.services.quotas.refusals["stored-bytes"] == 2
        assert (await upload(there, "team-a"))[0] == 201
        await there.control.services.commands.submit(Submission(document, "team-a"))


async def test_from_110_percent_on_new_attempts_wait_with_a_reason() -> None:
    async with place() as there:
        await bound(there, 1 << 40)
        assert (await upload(there, "team-b"))[0] == 201
        stored = there.control.services.stored
        await stored.update()
        held = machine_of(there.control).state.held
        assert held == {}
        await bound(there, stored.used("team-b") * 100 // 111)
        await stored.update()
        held = machine_of(there.control).state.held
        assert list(held) == ["team-b"]
        assert held["team-b"].cause == "storage-quota"
        assert "from 110% on no attempt begins" in held["team-b"].detail
        await bound(there, 1 << 40)
        await stored.update()
        assert machine_of(there.control).state.held == {}


async def test_a_collection_has_the_areas_counted_again() -> None:
    async with place() as there:
        await bound(there, 1 << 40)
        stored = there.control.services.stored
        await stored.update()
        stored.added("ns-team-b", 1 << 41)
        assert stored.is_full("team-b")
        await there.control.services.cache.collect(dry_run=False)
        await there.heard(lambda: stored.used("team-b") == 0)


@dataclass
class Listed:
    """A store whose content the test sets."""

    sizes: dict[str, list[int]] = field(default_factory=dict)
    listed: list[str] = field(default_factory=list)

    async def blobs(self, scope: str = "") -> AsyncIterator[StoredBlob]:
        self.listed.append(scope)
        for size in self.sizes.get(scope, []):
            yield StoredBlob(scope, Digest("0" * 64), size, 0.0)


async def counted(store: Listed, now: list[float], most: int) -> StoredBytes:
    async def post(_: object) -> None: ...

    quotas = Quotas(post)
    stored = StoredBytes(quotas, store, lambda: now[0])
    quota = Quota(name="q", namespaces=("b",), stored_bytes=most)
    await quotas.replace_all([quota], {"a": {}, "b": {}})
    await stored.update()
    return stored


async def test_what_is_added_counts_until_the_next_listing() -> None:
    store, now = Listed({"ns-b": [60, 30], "ns-a": [500]}), [0.0]
    stored = await counted(store, now, 100)
    assert (stored.used("b"), stored.used("a"), store.listed) == (90, 0, ["ns-b"])
    stored.added("ns-b", 20)
    stored.added("ns-a", 20)
    assert (stored.used("b"), stored.used("a")) == (110, 0)
    await stored.recount_if_full("b")
    assert store.listed == ["ns-b"], "it was listed a short time ago"
    now[0] += RECOUNT_S
    await stored.recount_if_full("b")
    assert (store.listed, stored.used("b")) == (["ns-b"] * 2, 90)


async def test_an_area_is_listed_every_six_hours_and_a_full_one_sooner() -> None:
    store, now = Listed({"ns-b": [60]}), [0.0]
    stored = await counted(store, now, 100)
    now[0] += COUNT_EVERY_S - 1.0
    await stored.update()
    assert len(store.listed) == 1
    now[0] += 1.0
    store.sizes["ns-b"] = [120]
    await stored.update()
    assert len(store.listed) == 2
    store.sizes["ns-b"] = [1]
    now[0] += RECOUNT_S
    await stored.update()
    assert (len(store.listed), stored.is_full("b")) == (3, False)


async def test_without_a_quota_nothing_is_listed() -> None:
    store = Listed({"ns-b": [60]})

    async def post(_: object) -> None: ...

    stored = StoredBytes(Quotas(post), store)
    await stored.update()
    stored.added("ns-b", 1 << 50)
    stored.check("b")
    assert (store.listed, stored.used("b")) == ([], 0)
