"""Views: what is written where, and what no view reads."""

import asyncio
import os
from pathlib import Path

import pytest
import versitygw
from backends import Backend
from tests.blob_views import SCOPE, blobs_of

from flowmesh_core.errors import BlobCorruptError, BlobNotFoundError, StoreError
from flowmesh_core.units import Digest
from flowmesh_store.hashing import digest_of
from flowmesh_store.s3.copier import BlobCopier
from flowmesh_store.s3.location import connect_blobs, connect_records, parse_location
from flowmesh_store.store import Store, open_store

GROUP, OTHER = "group-x", "ns-other"


async def put(store: Store, scope: str, data: bytes) -> Digest:
    await blobs_of(store, scope).put(digest_of(data), data)
    return digest_of(data)


async def test_a_blob_is_read_in_its_scope_and_in_no_other(
    backend: Backend, tmp_path: Path
) -> None:
    digest, other = await put(backend.store, SCOPE, b"mine"), blobs_of(backend.store, OTHER)
    for read in (other.get(digest), other.fetch(digest, tmp_path / "target")):
        with pytest.raises(BlobNotFoundError):
            await read
    assert await other.missing([digest]) == {digest}
    assert await other.copy([digest]) == {digest}
    assert await blobs_of(backend.store).get(digest) == b"mine"


async def test_a_view_reads_its_scopes_in_order_and_writes_to_one(
    backend: Backend, tmp_path: Path
) -> None:
    own, shared = await put(backend.store, SCOPE, b"own"), await put(backend.store, GROUP, b"all")
    view = backend.store.view(write=GROUP, read=(SCOPE, GROUP))
    assert [await view.get(own), await view.get(shared)] == [b"own", b"all"]
    assert await view.fetch(shared, tmp_path / "target") == 3
    assert await view.missing([own, shared, digest_of(b"?")]) == {digest_of(b"?")}
    await view.put(digest_of(b"new"), b"new")
    with view.spool() as writer:
        writer.write(b"spooled")
        await view.put_spooled(writer.finish())
    new = [digest_of(b"new"), digest_of(b"spooled")]
    assert await blobs_of(backend.store, GROUP).missing(new) == set()
    assert await blobs_of(backend.store, SCOPE).missing(new) == set(new)


@pytest.mark.parametrize("size", [0, 1, 70_000, 9 << 20])
async def test_a_copy_is_independent_of_the_original_scope(backend: Backend, size: int) -> None:
    data = os.urandom(size)
    digest, lost = await put(backend.store, SCOPE, data), digest_of(b"lost")
    view = backend.store.view(write=GROUP, read=(OTHER, SCOPE))
    assert await view.copy([digest, lost]) == {lost}
    assert await view.copy([digest]) == set()
    backend.rewrite(digest, None)
    assert await blobs_of(backend.store, GROUP).get(digest) == data
    with pytest.raises(BlobNotFoundError):
        await blobs_of(backend.store).get(digest)


async def test_a_copy_replaces_what_a_power_cut_left_of_an_earlier_one(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    digest = await put(store, SCOPE, b"content")
    cut = tmp_path / "store" / "cas" / GROUP / digest[:2] / digest
    cut.parent.mkdir(parents=True)
    cut.write_bytes(b"")
    view = store.view(write=GROUP, read=(SCOPE, GROUP))
    assert await view.copy([digest]) == set()
    assert await blobs_of(store, GROUP).get(digest) == b"content"


async def test_a_copy_has_the_age_of_a_new_put(backend: Backend) -> None:
    digest = await put(backend.store, SCOPE, b"old")
    backend.age(digest, 1e6)
    await backend.store.view(write=GROUP, read=(SCOPE,)).copy([digest])
    ages = {b.scope: b.age_s async for b in backend.store.sweepable_blobs.blobs()}
    assert ages[GROUP] < 1e3


async def test_the_blobs_of_one_scope_are_listed_alone(backend: Backend) -> None:
    mine = [await put(backend.store, SCOPE, b"%d" % n) for n in range(3)]
    await put(backend.store, GROUP, b"other")
    listed = [(b.scope, b.digest) async for b in backend.store.sweepable_blobs.blobs(SCOPE)]
    assert listed == [(SCOPE, digest) for digest in sorted(mine)]
    assert [b async for b in backend.store.sweepable_blobs.blobs("ns-nobody")] == []


async def test_many_copies_at_once_agree(backend: Backend) -> None:
    digests = [await put(backend.store, SCOPE, b"%d" % n) for n in range(40)]
    view = backend.store.view(write=GROUP, read=(SCOPE,))
    assert await asyncio.gather(*(view.copy(digests) for _ in range(4))) == [set()] * 4
    assert await blobs_of(backend.store, GROUP).missing(digests) == set()


async def test_a_damaged_copy_in_one_scope_is_skipped_for_an_intact_one(
    backend: Backend,
) -> None:
    digest = await put(backend.store, SCOPE, b"content")
    await put(backend.store, GROUP, b"content")
    backend.rewrite(digest, b"damaged")
    view = backend.store.view(write=SCOPE, read=(SCOPE, GROUP))
    assert await view.get(digest) == b"content"
    assert await blobs_of(backend.store).missing([digest]) == {digest}


async def test_damage_is_reported_in_preference_to_absence(backend: Backend) -> None:
    digest = await put(backend.store, SCOPE, b"content")
    backend.rewrite(digest, b"damaged")
    with pytest.raises(BlobCorruptError):
        await backend.store.view(write=SCOPE, read=(SCOPE, GROUP)).get(digest)


@pytest.mark.parametrize("scope", ["", ".", "..", "../ns-a", "ns-a/00", "a\0b", "x" * 201])
async def test_a_scope_is_a_single_path_segment(backend: Backend, scope: str) -> None:
    with pytest.raises(StoreError, match="not a scope"):
        backend.store.view(write=scope, read=())
    with pytest.raises(StoreError, match="not a scope"):
        backend.store.view(write=SCOPE, read=(scope,))


async def test_a_filesystem_without_links_copies_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    store = open_store(tmp_path)
    digest = await put(store, SCOPE, b"content")
    monkeypatch.setattr("os.link", refuse)
    assert await store.view(write=GROUP, read=(SCOPE,)).copy([digest]) == set()
    assert await blobs_of(store, GROUP).get(digest) == b"content"


@pytest.mark.slow
async def test_a_large_object_is_copied_in_parts(
    s3_server: versitygw.S3Server, tmp_path: Path
) -> None:
    url, data = s3_server.url(tmp_path.name), os.urandom(11 << 20)
    location, store = parse_location(url), open_store(url, spool_dir=tmp_path)
    digest = await put(store, SCOPE, data)
    clients = connect_blobs(location), connect_records(location)
    copier = BlobCopier(*clients, location, parts_from_bytes=5 << 20)
    source, target = (f"cas/{s}/{digest[:2]}/{digest}" for s in (SCOPE, GROUP))
    assert await copier.copy(source, target, len(data))
    assert await blobs_of(store, GROUP).get(digest) == data
    assert not await copier.copy(source[:-1], target, len(data))
    store.close()
