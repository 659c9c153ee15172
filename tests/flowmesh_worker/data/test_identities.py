"""A worker compares what it is given with its identity, and remembers which rows it compared."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.blob_views import blobs_of

from flowmesh_core.dataset import Manifest, dataset_digest, encode_manifest
from flowmesh_core.errors import BY_IDENTITY, IdentityMismatchError
from flowmesh_core.identity import canonical_bytes, digest_bytes
from flowmesh_core.machine.step_results import metrics_artifact
from flowmesh_core.protocol.messages import FailureReport, InputRef
from flowmesh_core.protocol.results import Artifact, content_artifact
from flowmesh_core.units import Digest
from flowmesh_store.cache.blob_cache import BlobCache
from flowmesh_store.cache.caching_blobs import CachingViews
from flowmesh_store.datasets import rows_to_chunks
from flowmesh_store.store import open_store
from flowmesh_worker.data.inputs import Inputs
from flowmesh_worker.data.verified_chunks import VerifiedChunks
from flowmesh_worker.engine_api import DatasetInput
from flowmesh_worker.failures import engine_failure, store_failure
from flowmesh_worker.host.work import local_inputs, verified_here

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

FALSE = Digest("f" * 64)
BLOB = content_artifact("blob", digest_bytes(b"x"), 1)
METRICS = metrics_artifact({"n": 1})


class Place:
    """The inputs of a worker over a store in memory."""

    def __init__(self, root: Path, world: "World") -> None:
        components: Any = None
        store = open_store("memory:")
        self.blobs = blobs_of(store)
        views = CachingViews(store, BlobCache(root / "cache", budget_bytes=1 << 20))
        self.inputs = Inputs(views, components, VerifiedChunks(root / "verified"))
        self.world = world

    async def fetch(self, ref: InputRef) -> Any:
        async with AsyncExitStack() as pins:
            assignment = self.world.assignment("data.sql", inputs={"in": ref})
            inline = self.inputs.inline_inputs(assignment)
            return (inline or await self.inputs.fetch(assignment, pins))["in"]


@pytest.fixture
def there(tmp_path: Path, world: "World") -> Place:
    return Place(tmp_path, world)


@pytest.mark.parametrize("artifact", [BLOB, METRICS], ids=["blob", "metrics"])
async def test_metrics_and_blobs_of_another_identity_are_refused(
    there: Place, artifact: Artifact
) -> None:
    content = b"x" if artifact is BLOB else canonical_bytes(METRICS.value)
    await there.blobs.put(artifact.blob, content)
    for ref in (
        InputRef(msgspec.structs.replace(artifact, digest=FALSE)),
        InputRef(msgspec.structs.replace(artifact, digest=FALSE), {artifact.blob: content}),
        InputRef(artifact, {artifact.blob: b"something else"}),
    ):
        with pytest.raises((IdentityMismatchError, ExceptionGroup)) as e:
            await there.fetch(ref)
        failure = store_failure(e.value, "an input could not be fetched")
        named = (failure.kind, failure.reason, failure.detail)
        assert named == ("missing-blob", BY_IDENTITY, artifact.blob)
    assert (await there.fetch(InputRef(artifact))).digest == artifact.digest


async def test_metrics_with_a_different_value_are_refused(there: Place) -> None:
    with pytest.raises(IdentityMismatchError):
        await there.fetch(InputRef(msgspec.structs.replace(METRICS, value={"n": 2})))


async def test_a_manifest_of_another_data_set_is_refused(there: Place) -> None:
    manifest, _ = rows_to_chunks([{"a": 1}])
    for content in (encode_manifest(manifest), b"not a manifest"):
        blob = digest_bytes(content)
        await there.blobs.put(blob, content)
        with pytest.raises(ExceptionGroup) as e:
            await there.fetch(InputRef(Artifact("dataset", FALSE, blob)))
        assert store_failure(e.value, "it could not be fetched").reason == BY_IDENTITY


def dataset(rows: list[dict[str, Any]]) -> tuple[Manifest, InputRef]:
    manifest, blobs = rows_to_chunks(rows)
    encoded = encode_manifest(manifest)
    artifact = Artifact(
        "dataset", dataset_digest(manifest), digest_bytes(encoded), manifest=manifest
    )
    return manifest, InputRef(artifact, blobs)


async def test_rows_are_compared_at_their_first_read_only(
    there: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, ref = dataset([{"a": n} for n in range(100)])
    given = {"in": await there.fetch(ref)}
    assert given["in"].verified == ()
    inputs = local_inputs(given)
    assert verified_here(given, inputs) == {}
    read = inputs["in"]
    assert isinstance(read, DatasetInput)
    assert len(read.rows()) == 100
    found = verified_here(given, inputs)
    assert found == {"in": tuple(range(len(manifest.chunks)))}
    assignment = there.world.assignment("data.sql", inputs={"in": ref})
    there.inputs.remember(assignment, given, found)
    again = {"in": await there.fetch(ref)}
    assert again["in"].verified == found["in"]
    monkeypatch.delattr("flowmesh_store.datasets.verified_chunks._rows_digest")
    later = local_inputs(again)
    assert later["in"].table().num_rows == 100  # type: ignore[union-attr]
    assert read.table().num_rows == 100
    assert verified_here(again, later) == {}


async def test_rows_of_another_identity_end_the_attempt_as_such(there: Place) -> None:
    manifest, ref = dataset([{"a": 1}])
    chunk = msgspec.structs.replace(manifest.chunks[0], rows=FALSE)
    artifact = msgspec.structs.replace(ref.artifact, manifest=Manifest(manifest.schema, (chunk,)))
    given = {"in": await there.fetch(InputRef(artifact, ref.inline))}
    inputs = local_inputs(given)
    with pytest.raises(IdentityMismatchError) as e:
        inputs["in"].rows()  # type: ignore[union-attr]
    assert verified_here(given, inputs) == {}
    failure = engine_failure(e.value, "data.sql")
    named = (failure.kind, failure.reason, failure.detail)
    assert named == ("missing-blob", BY_IDENTITY, chunk.blob)


def test_a_manifest_that_only_the_worker_has_read_is_named_too(there: Place) -> None:
    refs = {"in": InputRef(Artifact("dataset", FALSE, Digest("e" * 64))), "b": InputRef(BLOB)}
    assignment = there.world.assignment("data.sql", inputs=refs)
    failure = FailureReport("missing-blob", "other rows", detail="d" * 64, reason=BY_IDENTITY)
    named = Inputs.with_manifests(assignment, failure)
    assert named.detail == f"{'d' * 64} {'e' * 64}"
    lost = msgspec.structs.replace(failure, reason="")
    assert Inputs.with_manifests(assignment, lost) == lost
