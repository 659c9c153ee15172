"""Directories as manifests of blobs."""

import asyncio
import os
from pathlib import Path

import orjson
import pytest
from backends import Backend
from tests.blob_views import blobs_of

from flowmesh_core.errors import BlobCorruptError, BlobNotFoundError, StoreError
from flowmesh_store.hashing import digest_of
from flowmesh_store.store import Store
from flowmesh_store.tree import fetch_tree, store_tree


async def put_tree(blobs, directory):
    return (await store_tree(blobs, directory)).digest


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.store


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    (directory / "sub" / "deep").mkdir(parents=True)
    (directory / "sub-way").write_bytes(b"sorts between sub and sub/")
    (directory / "config.json").write_bytes(b"{}")
    (directory / "empty").write_bytes(b"")
    (directory / "sub" / "deep" / "ünïcode.txt").write_bytes(b"hello")
    (directory / "sub" / "weights.safetensors").write_bytes(os.urandom(300_000))
    (directory / "run.sh").write_bytes(b"#!/bin/sh\n")
    (directory / "run.sh").chmod(0o755)
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    files = (p for p in directory.rglob("*") if p.is_file())
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in files}


async def test_a_directory_round_trips(store: Store, model: Path, tmp_path: Path) -> None:
    stored = await store_tree(blobs_of(store), model)
    fetched = await fetch_tree(blobs_of(store), stored.digest, tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(model)
    assert fetched == stored
    assert stored.size_bytes == sum(map(len, contents(model).values()))
    assert os.access(tmp_path / "copy" / "run.sh", os.X_OK)
    assert not os.access(tmp_path / "copy" / "config.json", os.X_OK)


async def test_a_fetch_is_complete_when_the_target_appears_and_cannot_be_cancelled_after_that(
    store: Store, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = await put_tree(blobs_of(store), model)
    target, rename = tmp_path / "copy", os.rename
    task = asyncio.create_task(fetch_tree(blobs_of(store), digest, target))

    def rename_and_cancel(partial: Path, whole: Path) -> None:
        rename(partial, whole)
        asyncio.get_running_loop().call_soon(task.cancel)

    with monkeypatch.context() as patch:
        patch.setattr("flowmesh_store.tree.os.rename", rename_and_cancel)
        await asyncio.wait([task])
    assert not task.cancelled()
    assert contents(target) == contents(model)


async def test_equal_directories_have_equal_digests_whatever_their_times(
    store: Store, model: Path, tmp_path: Path
) -> None:
    first = await put_tree(blobs_of(store), model)
    await fetch_tree(blobs_of(store), first, tmp_path / "copy")
    os.utime(tmp_path / "copy" / "config.json", (1, 1))
    (tmp_path / "copy" / "config.json").chmod(0o600)
    (tmp_path / "copy" / "no files in here").mkdir()
    assert await put_tree(blobs_of(store), tmp_path / "copy") == first
    (tmp_path / "copy" / "config.json").write_bytes(b"[]")
    assert await put_tree(blobs_of(store), tmp_path / "copy") != first


async def test_the_manifest_is_frozen(store: Store, tmp_path: Path) -> None:
    (tmp_path / "d" / "a").mkdir(parents=True)
    (tmp_path / "d" / "a" / "b").write_bytes(b"1")
    (tmp_path / "d" / "a.b").write_bytes(b"")
    manifest = await blobs_of(store).get(await put_tree(blobs_of(store), tmp_path / "d"))
    one, none = digest_of(b"1"), digest_of(b"")
    assert manifest.decode() == (
        f'{{"files":[{{"bytes":0,"digest":"{none}","path":"a.b"}},'
        f'{{"bytes":1,"digest":"{one}","path":"a/b"}}],"kind":"tree"}}'
    )


@pytest.mark.parametrize("kind", ["file link", "directory link", "pipe"])
async def test_links_and_special_files_are_refused_by_name(
    store: Store, model: Path, kind: str
) -> None:
    odd = model / "sub" / "odd"
    if kind == "pipe":
        os.mkfifo(odd)
    else:
        odd.symlink_to(model / "config.json" if kind == "file link" else model / "sub")
    with pytest.raises(StoreError, match=r"sub/odd.*cp -rL"):
        await put_tree(blobs_of(store), model)


async def test_a_missing_directory_is_named(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        await put_tree(blobs_of(store), tmp_path / "nowhere")


FILE = {"bytes": 0, "digest": digest_of(b""), "path": "f"}


@pytest.mark.parametrize(
    "files",
    [
        [FILE | {"path": "../f"}],
        [FILE | {"path": "/etc/f"}],
        [FILE | {"path": "a/../../f"}],
        [FILE | {"path": "a//f"}],
        [FILE | {"path": "./f"}],
        [FILE | {"path": ""}],
        [FILE | {"path": "f\0"}],
        [FILE, FILE],
        [FILE, FILE | {"path": "f/g"}],
        [FILE | {"mode": 0o4755}],
        [FILE | {"digest": "../../x"}],
        [FILE | {"bytes": -1}],
        [FILE | {"bytes": 7}],
        [{"path": "f"}],
    ],
)
async def test_an_unsound_manifest_writes_nothing(
    store: Store, files: list[dict[str, object]], tmp_path: Path
) -> None:
    manifest = orjson.dumps({"kind": "tree", "files": files})
    await blobs_of(store).put(digest_of(b""), b"")
    await blobs_of(store).put(digest_of(manifest), manifest)
    (tmp_path / "out").mkdir()
    with pytest.raises(StoreError):
        await fetch_tree(blobs_of(store), digest_of(manifest), tmp_path / "out" / "target")
    assert list((tmp_path / "out").iterdir()) == []


async def test_content_of_another_kind_is_not_a_manifest(store: Store, tmp_path: Path) -> None:
    for content in (b"GGUF", b"{}", b'{"kind":"dataset","files":[]}'):
        await blobs_of(store).put(digest_of(content), content)
        with pytest.raises(StoreError, match="manifest is invalid"):
            await fetch_tree(blobs_of(store), digest_of(content), tmp_path / "target")


@pytest.mark.parametrize("damage", [None, b"other"])
async def test_a_lost_or_damaged_file_fails_the_fetch_and_leaves_nothing(
    backend: Backend, model: Path, tmp_path: Path, damage: bytes | None
) -> None:
    digest = await put_tree(blobs_of(backend.store), model)
    backend.rewrite(digest_of(b"hello"), damage)
    (tmp_path / "out").mkdir()
    with pytest.raises((BlobNotFoundError, BlobCorruptError)):
        await fetch_tree(blobs_of(backend.store), digest, tmp_path / "out" / "target")
    assert list((tmp_path / "out").iterdir()) == []


async def test_a_target_with_content_is_not_changed(
    store: Store, model: Path, tmp_path: Path
) -> None:
    digest = await put_tree(blobs_of(store), model)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").write_bytes(b"mine")
    with pytest.raises(StoreError, match="taken"):
        await fetch_tree(blobs_of(store), digest, tmp_path / "taken")
    assert contents(tmp_path / "taken") == {"mine": b"mine"}
