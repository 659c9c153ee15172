"""The chain of the request log: what a check accepts of honest leaders, and what it finds."""

import base64
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.flowmesh_control.fabric import KEY
from tests.flowmesh_control.request_log.logs import (
    NOON_S,
    Leader,
    data_of,
    entry,
    key_of,
    names,
    put,
    remove,
    three_epochs,
)

from flowmesh_api.v1.request_log import RequestLogCheck
from flowmesh_control.cache.log_retention import LogRetention
from flowmesh_control.records.keys import PUBLIC_KEYS, REQUEST_LOG_BEGINNING
from flowmesh_control.request_log.segments import PAYLOAD_TYPE, link_to
from flowmesh_control.request_log.signatures import (
    SignatureError,
    Signer,
    pre_authentication_encoding,
    verified_payload,
)
from flowmesh_core.errors import ConditionFailedError, StoreUnavailableError
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_store.ports import Record
from flowmesh_store.store import Store, open_store


async def test_the_chain_continues_across_leaders() -> None:
    store = await three_epochs()
    assert await Leader(store, 4).check() == RequestLogCheck(segments=9, entries=9, lost=0)
    lines = (await data_of(store, key_of(2, 1))).splitlines()
    before = link_to(key_of(1, 3), await data_of(store, key_of(1, 3)))
    assert msgspec.json.decode(lines[0])["previous"] == msgspec.to_builtins(before)


async def test_an_empty_log_is_valid() -> None:
    assert await Leader(open_store("memory:")).check() == RequestLogCheck(0, 0, 0)


async def test_a_line_is_a_kubernetes_audit_event() -> None:
    store = open_store("memory:")
    await Leader(store).write("one")
    line = msgspec.json.decode((await data_of(store, key_of(1, 1))).splitlines()[1])
    assert line.pop("auditID")
    assert line == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "stage": "ResponseComplete",
        "requestURI": "/v1/runs",
        "verb": "create",
        "user": {"username": "owner"},
        "objectRef": {
            "resource": "runs",
            "namespace": "team-a",
            "name": "one",
            "apiVersion": "v1",
        },
        "responseStatus": {"code": 201},
        "requestReceivedTimestamp": "2026-09-21T14:13:20.000000Z",
        "stageTimestamp": "2026-09-21T14:13:20.000000Z",
    }


@pytest.mark.parametrize("epoch", [1, 2, 3])
@pytest.mark.parametrize("seq", [1, 2, 3])
async def test_a_removed_segment_is_named(epoch: int, seq: int) -> None:
    store = await three_epochs()
    leader = Leader(store, 4)
    await leader.write("d")
    await remove(store, key_of(epoch, seq))
    found = await leader.check()
    assert found.bad == key_of(epoch, seq)
    assert "missing" in found.reason


async def test_the_leader_detects_the_removal_of_its_last_segments() -> None:
    store = open_store("memory:")
    leader = Leader(store)
    await leader.write("a", "b", "c")
    await remove(store, key_of(1, 3))
    assert not (await leader.check()).bad  # nobody else can know
    found = await leader.check(last=leader.log.last)
    assert (found.bad, found.segments) == (key_of(1, 3), 2)


@pytest.mark.parametrize("how", ["edited", "cut", "cut entry", "unsigned", "other", "foreign key"])
async def test_a_changed_segment_is_named(how: str) -> None:
    store = await three_epochs()
    key = key_of(2, 2)
    data = await data_of(store, key)
    lines = data.splitlines(keepends=True)
    changed = {
        "edited": data.replace(b'"owner"', b'"other"'),
        "cut": data[:-20],
        "cut entry": lines[0] + lines[2],
        "unsigned": lines[0] + lines[1],
        "other": await data_of(store, key_of(2, 3)),
        "foreign key": Signer(KeyRing.of(b"x" * 32)).sign(lines[0] + lines[1], PAYLOAD_TYPE),
    }[how]
    assert changed != data
    await put(store, key, changed)
    found = await Leader(store, 4).check()
    assert (found.bad, found.segments) == (key, 4)


async def test_swapped_segments_are_found() -> None:
    store = await three_epochs()
    one, other = await data_of(store, key_of(1, 2)), await data_of(store, key_of(2, 2))
    await put(store, key_of(1, 2), other)
    await put(store, key_of(2, 2), one)
    found = await Leader(store, 4).check()
    assert (found.bad, found.reason) == (key_of(1, 2), f"it was written as {key_of(2, 2)}")


async def test_a_second_first_segment_is_found() -> None:
    store, elsewhere = await three_epochs(), open_store("memory:")
    await Leader(elsewhere, 4).write("forged history")
    await put(store, key_of(4, 1), await data_of(elsewhere, key_of(4, 1)))
    found = await Leader(store, 5).check()
    assert (found.bad, found.segments) == (key_of(4, 1), 9)


async def test_a_superseded_leader_does_not_break_the_chain() -> None:
    store = open_store("memory:")
    old, new = Leader(store, 1), Leader(store, 2)
    await old.write("a", "b")
    await new.write("c")
    await old.write("late")
    await new.write("d")
    assert await new.check() == RequestLogCheck(segments=5, entries=5, lost=0)


async def test_a_file_planted_under_the_next_key_blocks_no_entry_and_is_detected() -> None:
    store = open_store("memory:")
    leader = Leader(store)
    await leader.write("a")
    await put(store, key_of(1, 2), b"garbage\n")
    await leader.write("b")
    found = await leader.check()
    assert (found.bad, found.segments) == (key_of(1, 2), 1)
    await remove(store, key_of(1, 2))
    assert await leader.check() == RequestLogCheck(segments=2, entries=2, lost=0)


async def test_a_new_leader_skips_planted_files() -> None:
    store = open_store("memory:")
    await Leader(store).write("a")
    await put(store, key_of(99999999, 99999999, "9999-12-31"), b"garbage\n")
    await Leader(store, 2).write("b")
    await remove(store, key_of(99999999, 99999999, "9999-12-31"))
    assert await Leader(store, 3).check() == RequestLogCheck(segments=2, entries=2, lost=0)


async def test_a_clock_that_is_set_back_does_not_change_the_order() -> None:
    store = open_store("memory:")
    ahead = Leader(store, 1, now=[NOON_S + 3 * 86400])
    await ahead.write("a")
    await Leader(store, 2).write("b")
    await Leader(store, 3).write("c")
    assert await names(store) == ["a", "b", "c"]
    assert await Leader(store, 4).check() == RequestLogCheck(segments=3, entries=3, lost=0)


async def test_a_rotated_and_retired_key_still_verifies() -> None:
    store = open_store("memory:")
    await Leader(store).write("a")
    both = KeyRing((("01", b"n" * 32), *KEY.secrets))
    leader = Leader(store, 2, ring=both)
    await leader.write("b")
    old, new = KEY, KeyRing((("01", b"n" * 32),))
    record = await store.records.read(PUBLIC_KEYS)
    assert record is not None
    found = await leader.check()
    assert (found.bad, found.segments) == ("", 2)
    assert {key.key_id for key in await leader.keys.all()} == {"00", "01"}
    assert Signer(old).public_keys()[0] in await leader.keys.all()
    assert Signer(new).public_keys()[0] in await leader.keys.all()


class Unreliable:
    """Records of which a write fails: it is refused, or written without an answer."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.failing = ""

    async def read(self, key: str) -> Record | None:
        return await self.store.records.read(key)

    async def write(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        if self.failing == "refused":
            raise StoreUnavailableError("gone", where=key)
        try:
            etag = await self.store.records.write(key, data, if_match=if_match)
        except ConditionFailedError:
            found = await self.store.records.read(key)
            if found is not None and found.data == data:
                return found.etag
            raise
        if self.failing == "unanswered":
            raise StoreUnavailableError("gone", where=key)
        return etag

    def keys(self, prefix: str) -> AsyncIterator[str]:
        return self.store.records.keys(prefix)

    def folders(self, prefix: str) -> AsyncIterator[str]:
        return self.store.records.folders(prefix)


@pytest.mark.parametrize("failing", ["refused", "unanswered"])
async def test_entries_that_could_not_be_written_are_written_once_when_the_store_recovers(
    failing: str,
) -> None:
    store = open_store("memory:")
    records = Unreliable(store)
    leader = Leader(store, records=records)
    await leader.write("a")
    records.failing = failing
    leader.log.add(entry("b"))
    for _ in range(3):
        with pytest.raises(StoreUnavailableError):
            await leader.log.flush()
        leader.log.add(entry("c"))
    assert leader.log.pending == (4 if failing == "refused" else 2)
    records.failing = ""
    await leader.log.flush()
    assert await names(store) == ["a", "b", "c", "c", "c"]
    assert (leader.log.pending, leader.log.written) == (0, 5)
    assert not (await leader.check(last=leader.log.last)).bad


async def test_entries_beyond_the_bound_are_counted_in_the_next_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flowmesh_control.request_log.request_log.PENDING_BYTES_MAX", 1000)
    store = open_store("memory:")
    leader = Leader(store)
    for n in range(10):
        leader.log.add(entry(f"n{n}"))
    kept = leader.log.pending
    assert 0 < kept < 10
    await leader.log.flush()
    await leader.write("after")
    found = await leader.check()
    assert (found.entries, found.lost) == (kept + 1, 10 - kept)
    assert leader.log.lost == 10 - kept


async def test_many_entries_become_several_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowmesh_control.request_log.request_log.SEGMENT_BYTES_MAX", 1000)
    store = open_store("memory:")
    leader = Leader(store)
    for n in range(10):
        leader.log.add(entry(f"n{n}"))
    await leader.log.flush()
    found = await leader.check()
    assert found.entries == 10
    assert found.segments > 2
    assert await names(store) == [f"n{n}" for n in range(10)]


async def expire(store: Store, ttl_s: float, *, dry_run: bool = False) -> int:
    retention = LogRetention(store.records, store.sweepable_records, Signer(KEY), ttl_s=ttl_s)
    return await retention.expire(dry_run=dry_run)


async def test_expired_segments_are_deleted_and_the_beginning_is_stated() -> None:
    store = await three_epochs()
    assert await expire(store, 3600.0) == 0
    assert await expire(store, 0.0, dry_run=True) == 8
    assert await names(store) == ["a", "b", "c"] * 3
    assert await expire(store, 0.0) == 8
    assert await names(store) == ["c"]
    leader = Leader(store, 4)
    assert await leader.check() == RequestLogCheck(segments=1, entries=1, lost=0)
    await leader.write("d", "e")
    assert (await leader.check()).segments == 3
    assert await expire(store, 0.0) == 2
    assert (await leader.check()).segments == 1


async def test_a_replaced_or_edited_beginning_is_detected() -> None:
    store = await three_epochs()
    assert await expire(store, 0.0) == 8
    first = await data_of(store, REQUEST_LOG_BEGINNING)
    leader = Leader(store, 4)
    await leader.write("d", "e")
    assert await expire(store, 0.0) == 2
    await put(store, REQUEST_LOG_BEGINNING, first)
    assert (await leader.check()).bad == key_of(3, 3)
    await put(store, REQUEST_LOG_BEGINNING, first.replace(b"00000003-", b"00000004-"))
    assert (await leader.check()).bad == REQUEST_LOG_BEGINNING
    await remove(store, REQUEST_LOG_BEGINNING)
    assert (await leader.check()).bad == key_of(4, 1)


async def test_a_beginning_without_its_segment_is_found() -> None:
    store = await three_epochs()
    await expire(store, 0.0)
    await remove(store, key_of(3, 3))
    assert (await Leader(store, 4).check()).bad == key_of(3, 3)


async def test_the_segments_of_a_superseded_leader_do_not_hide_the_expired_ones() -> None:
    store = open_store("memory:")
    old, new = Leader(store, 1), Leader(store, 2)
    await old.write("a")
    await new.write("b")
    await old.write("late", "later")
    await new.write("c")
    for key in (key_of(1, 1), key_of(1, 2), key_of(1, 3)):
        retention = LogRetention(store.records, store.sweepable_records, Signer(KEY), ttl_s=0.0)
        await retention._begin_with(key)
        assert not (await new.check()).bad


def test_signatures_follow_the_dsse_format() -> None:
    assert pre_authentication_encoding("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_a_signature_is_checked_by_any_library() -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    signer = Signer(KEY)
    document = signer.sign(b"hello\n", "text/plain")
    payload, line = document.splitlines(keepends=True)
    envelope = msgspec.json.decode(line)
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(signer.public_keys()[0].key))
    [signature] = envelope["signatures"]
    assert (envelope["payloadType"], signature["keyid"]) == ("text/plain", "00")
    key.verify(base64.b64decode(signature["sig"]), b"DSSEv1 10 text/plain 6 hello\n")
    assert verified_payload(document, "text/plain", signer.public_keys()) == payload
    with pytest.raises(SignatureError, match="signed as 'text/plain'"):
        verified_payload(document, "text/other", signer.public_keys())
    with pytest.raises(SignatureError, match="whose public key is not known"):
        verified_payload(document, "text/plain", ())
