"""Uploaded content is read back by its reference."""

import tarfile
from io import BytesIO
from pathlib import Path

import msgspec
import pytest
from tests.blob_views import blobs_of

from flowmesh_control.queries.downloads import download_of
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_control.records.lineage_index import LineageIndex
from flowmesh_control.records.reference_issuer import ReferenceIssuer
from flowmesh_control.records.revocations import Revocations
from flowmesh_control.runs.uploads import UploadStore
from flowmesh_core.errors import InvalidReferenceError
from flowmesh_core.sharing import KeyRing, plan_scopes
from flowmesh_core.units import Digest
from flowmesh_store.store import Store

KEY_RING = KeyRing.of(b"k" * 32)
A = plan_scopes([], "team-a")
B = plan_scopes([], "team-b")


def references(store: Store) -> ReferenceIssuer:
    return ReferenceIssuer(KEY_RING, CachePolicyStore(store.records))


def uploads(store: Store) -> UploadStore:
    revocations = Revocations(store.records, LineageIndex(store.records), lambda: 10.0)
    return UploadStore(store, references(store), revocations)


async def test_rows_are_readable_by_their_reference_only_in_their_own_namespace(
    store: Store,
) -> None:
    content = uploads(store)
    stored = await content.put_file("x.jsonl", b'{"a": 1}\n{"a": 2}\n', A.private)
    loaded = await content.load("dataset", stored.reference, A)
    assert msgspec.structs.replace(loaded, manifest=None) == stored.artifact
    assert loaded.rows == 2
    with pytest.raises(InvalidReferenceError, match="not valid for this namespace"):
        await content.load("dataset", stored.reference, B)
    with pytest.raises(InvalidReferenceError, match="of kind dataset; expected one of kind model"):
        await content.load("model", stored.reference, A)
    gone = references(store).issue(A.private, "dataset", Digest("0" * 64))
    with pytest.raises(InvalidReferenceError, match="no longer"):
        await content.load("dataset", gone, A)


async def test_an_uploaded_directory_is_downloaded_as_the_same_tar(
    store: Store, tmp_path: Path
) -> None:
    content = uploads(store)
    model = tmp_path / "model"
    (model / "sub").mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "sub" / "w.bin").write_bytes(b"w" * 1000)
    stored = await content.put_directory("model", model, A.private)
    loaded = await content.load("model", stored.reference, A)
    download = download_of(blobs_of(store), [loaded])
    data = b"".join([piece async for piece in download.pieces])
    with tarfile.open(fileobj=BytesIO(data)) as tar:
        names = tar.getnames()
        member = tar.extractfile("sub/w.bin")
        assert member is not None
        assert member.read() == b"w" * 1000
    assert sorted(names) == ["config.json", "sub/w.bin"]
    assert loaded.size_bytes == 1002
