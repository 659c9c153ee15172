"""Identities of content contain its kind: bytes that are valid as two kinds have two."""

from itertools import permutations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowmesh_core.catalog.contract import PortKind
from flowmesh_core.dataset import Manifest, dataset_digest, encode_manifest
from flowmesh_core.dataset.manifest import ChunkRef
from flowmesh_core.dataset.schema import Schema
from flowmesh_core.errors import IdentityError
from flowmesh_core.identity import (
    content_identity,
    digest_bytes,
    digest_value,
    tree_identity,
)
from flowmesh_core.units import Digest
from flowmesh_store.tree import TreeFile, encode_tree

A_BLOB = digest_bytes(b"x")
DIGESTS = st.binary(max_size=8).map(digest_bytes)
FILES = st.lists(
    st.builds(
        TreeFile, st.text("ab/.", min_size=1), DIGESTS, st.integers(0, 9), st.sampled_from([0, 493])
    ),
    max_size=3,
)
MANIFESTS = st.builds(
    Manifest,
    st.sampled_from([Schema(), Schema.of({"a": "int"})]),
    st.lists(st.builds(ChunkRef, DIGESTS, DIGESTS, st.integers(0, 9), st.integers(0, 9))).map(
        tuple
    ),
)


def identities(manifest: Manifest, files: list[TreeFile], data: bytes) -> dict[str, Digest]:
    """The identity as each kind: of the same bytes where these are valid as several."""
    return {
        "dataset": dataset_digest(manifest),
        "model": tree_identity("model", files),
        "adapter": tree_identity("adapter", files),
        "metrics": content_identity("metrics", digest_bytes(data)),
        "blob": content_identity("blob", digest_bytes(data)),
    }


@given(MANIFESTS, FILES, st.data())
def test_bytes_that_are_valid_in_two_kinds_never_share_an_identity(
    manifest: Manifest, files: list[TreeFile], data: st.DataObject
) -> None:
    shapes = [encode_manifest(manifest), encode_tree(files), b"{}"]
    found = identities(manifest, files, data.draw(st.sampled_from(shapes)))
    assert found.keys() == set(PortKind)
    for one, other in permutations(PortKind, 2):
        assert found[one] != found[other], (one, other)
    blobs = {digest_bytes(shape) for shape in shapes}
    assert blobs.isdisjoint(found.values())


def test_an_identity_differs_from_every_digest_that_a_tenant_may_choose() -> None:
    """Metrics are 32 raw bytes, which no canonical JSON is."""
    assert content_identity("metrics", A_BLOB) != digest_value("metrics", A_BLOB)
    assert content_identity("metrics", A_BLOB) != A_BLOB


def test_equal_directories_have_equal_identities_however_their_manifest_is_written() -> None:
    files = [TreeFile("b", A_BLOB, 1), TreeFile("a", A_BLOB, 1, 0o755)]
    assert tree_identity("model", files) == tree_identity("model", files[::-1])
    for change in ({"path": "c"}, {"digest": digest_bytes(b"y")}, {"bytes": 2}, {"mode": 0o755}):
        changed = [msgspec.structs.replace(files[0], **change), files[1]]
        assert tree_identity("model", changed) != tree_identity("model", files)


@pytest.mark.parametrize("kind", ["dataset", "model", "checkpoint", ""])
def test_kinds_that_are_not_identified_by_their_bytes_are_refused(kind: str) -> None:
    with pytest.raises(IdentityError, match="not identified by its bytes"):
        content_identity(kind, A_BLOB)


@pytest.mark.parametrize("kind", ["dataset", "blob", "metrics", "checkpoint"])
def test_kinds_that_are_not_a_directory_are_refused(kind: str) -> None:
    with pytest.raises(IdentityError, match="not a directory"):
        tree_identity(kind, [])
