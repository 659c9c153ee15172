"""A worker keeps models and adapters by their identity, and checks it before it fetches them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.blob_views import SCOPE, blobs_of

from flowmesh_core.dataset import dataset_digest, encode_manifest
from flowmesh_core.errors import BlobCorruptError, BlobNotFoundError
from flowmesh_core.identity import digest_bytes, tree_identity
from flowmesh_core.protocol.results import Artifact
from flowmesh_store.datasets import rows_to_chunks
from flowmesh_store.store import Store, open_store
from flowmesh_store.tree import read_tree, store_tree
from flowmesh_worker.data.components import ComponentCache
from flowmesh_worker.engine_api import TreeInput
from flowmesh_worker.engines.resident_dataset import resident_dataset


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    found = open_store("memory:")
    yield found
    found.close()


def cache_on(store: Store, root: Path) -> ComponentCache:
    return ComponentCache(store, root / "components", 1 << 30, in_use=tuple, on_change=lambda: None)


async def stored(store: Store, root: Path, content: str, kind: str = "model") -> Artifact:
    directory = root / content
    directory.mkdir()
    (directory / "weights").write_text(content)
    tree = await store_tree(blobs_of(store), directory)
    return Artifact(kind, tree_identity(kind, tree.files), tree.digest, tree.size_bytes)


async def test_files_of_another_model_are_not_loaded_under_its_identity(
    store: Store, tmp_path: Path
) -> None:
    """A worker of a shared pool may report any pair of identity and blob."""
    honest = await stored(store, tmp_path, "honest")
    evil = await stored(store, tmp_path, "evil")
    forged = msgspec.structs.replace(honest, blob=evil.blob)
    cache = cache_on(store, tmp_path)
    with pytest.raises(BlobCorruptError, match="are not those of the model") as refused:
        async with cache.pinned(forged, (SCOPE,)):
            pass
    assert refused.value.digest == evil.blob  # the step that named it runs again
    assert not cache.holds(honest.digest)
    async with cache.pinned(honest, (SCOPE,)) as path:
        assert (path / "weights").read_text() == "honest"
    # What was checked is kept under the identity, so the forged pair now reads the honest files.
    async with cache.pinned(forged, (SCOPE,)) as path:
        assert (path / "weights").read_text() == "honest"


async def test_a_forged_pair_does_not_fail_an_attempt_that_waits_for_the_honest_one(
    store: Store, tmp_path: Path
) -> None:
    honest = await stored(store, tmp_path, "honest")
    evil = await stored(store, tmp_path, "evil")
    cache = cache_on(store, tmp_path)

    async def read(artifact: Artifact) -> str:
        async with cache.pinned(artifact, (SCOPE,)) as path:
            return (path / "weights").read_text()

    forged = msgspec.structs.replace(honest, blob=evil.blob)
    answers = await asyncio.gather(read(forged), read(honest), return_exceptions=True)
    assert isinstance(answers[0], BlobCorruptError)
    assert answers[1] == "honest"


async def test_a_model_and_an_adapter_of_equal_files_are_two_components(
    store: Store, tmp_path: Path
) -> None:
    model = await stored(store, tmp_path, "same")
    tree = msgspec.structs.replace(model, kind="adapter")
    cache = cache_on(store, tmp_path)
    with pytest.raises(BlobCorruptError, match="are not those of the adapter"):
        async with cache.pinned(tree, (SCOPE,)):
            pass
    async with cache.pinned(model, (SCOPE,)):
        assert cache.holds(model.digest)


async def test_a_cached_tree_is_used_only_for_scopes_in_which_the_store_has_all_of_it(
    store: Store, tmp_path: Path
) -> None:
    model = await stored(store, tmp_path, "mine")
    cache = cache_on(store, tmp_path)
    async with cache.pinned(model, (SCOPE,)):
        pass
    files = (await read_tree(blobs_of(store), model.blob)).files
    other = store.view(write="ns-other", read=(SCOPE,))
    for copied in ([], [model.blob], [model.blob, *(f.digest for f in files)]):
        await other.copy(copied)
        if len(copied) > 1:
            break
        with pytest.raises(BlobNotFoundError):
            async with cache.pinned(model, ("ns-other",)):
                pass
    async with cache.pinned(model, ("ns-other",)) as path:
        assert (path / "weights").read_text() == "mine"


async def test_an_attempt_that_waits_for_anothers_fetch_is_checked_against_its_own_scopes(
    store: Store, tmp_path: Path
) -> None:
    model = await stored(store, tmp_path, "mine")
    cache = cache_on(store, tmp_path)

    async def read(scope: str) -> str:
        async with cache.pinned(model, (scope,)) as path:
            return (path / "weights").read_text()

    for order in (("ns-other", SCOPE), (SCOPE, "ns-other")):
        answers = await asyncio.gather(*map(read, order), return_exceptions=True)
        found = dict(zip(order, answers, strict=True))
        assert found[SCOPE] == "mine"
        assert isinstance(found["ns-other"], BlobNotFoundError)


async def test_a_resident_data_set_is_a_folder_that_is_compared_with_its_identity(
    store: Store, tmp_path: Path
) -> None:
    honest = await stored_rows(store, [{"text": "honest"}])
    evil = await stored_rows(store, [{"text": "evil"}])
    forged = msgspec.structs.replace(honest, blob=evil.blob)
    cache = cache_on(store, tmp_path)
    with pytest.raises(BlobCorruptError, match="manifest is not that of the data set"):
        async with cache.pinned(forged, (SCOPE,)):
            pass
    assert not cache.holds(honest.digest)
    with pytest.raises(BlobNotFoundError):
        async with cache.pinned(honest, ("ns-other",)):
            pass
    async with cache.pinned(honest, (SCOPE,)) as path:
        assert resident_dataset(TreeInput(honest.digest, path)).rows() == [{"text": "honest"}]
    await store.view(write="ns-other", read=(SCOPE,)).copy([honest.blob])
    with pytest.raises(BlobNotFoundError):  # its chunk is not in that scope
        async with cache.pinned(honest, ("ns-other",)):
            pass


async def stored_rows(store: Store, rows: list[dict[str, str]]) -> Artifact:
    manifest, blobs = rows_to_chunks(rows)
    data = encode_manifest(manifest)
    for digest, content in {**blobs, digest_bytes(data): data}.items():
        await blobs_of(store).put(digest, content)
    return Artifact("dataset", dataset_digest(manifest), digest_bytes(data))
