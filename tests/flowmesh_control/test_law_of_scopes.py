"""Law L1: nobody is given bytes that its scopes did not have.

Tenants upload, share by policy, use references of anybody, run steps on one worker that all of
them share, and download. A hostile worker, together with a tenant, reports whatever it likes for
the attempts that it was given: manifests made by hand, of digests of anybody, as every kind of
output. No reference, run, lineage or download of a scope ever yields bytes that the scope did not
have: uploaded there, published there, or shared by a policy at that time.

Each actor reads and writes as the model below says that it may: whatever reaches the store is
compared with that, and whatever an engine is shown with what the scopes ever had.
``FLOWMESH_LAW_EXAMPLES=10000`` is for the night.
"""

import asyncio
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.blob_views import blobs_of, token_of
from tests.flowmesh_store import versitygw

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_control.queries.downloads import download_of
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_control.records.lineage_index import LineageIndex
from flowmesh_control.records.reference_issuer import ReferenceIssuer
from flowmesh_control.records.revocations import Revocations
from flowmesh_control.runs.uploads import UploadStore, dataset_artifact
from flowmesh_core.dataset import ChunkRef, Column, ColumnType, Manifest, Schema, encode_manifest
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.identity import canonical_bytes, digest_bytes, tree_identity
from flowmesh_core.protocol.messages import Assignment, InputRef
from flowmesh_core.protocol.results import Artifact, content_artifact
from flowmesh_core.sharing import ScopePlan, read_reference
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_core.units import Digest
from flowmesh_store.blobs import BlobArea
from flowmesh_store.cache.blob_cache import BlobCache
from flowmesh_store.cache.caching_blobs import CachingViews
from flowmesh_store.ports import NO_SIZES
from flowmesh_store.spool import SpooledFile, SpoolWriter
from flowmesh_store.store import open_store
from flowmesh_store.tree import TreeFile, encode_tree
from flowmesh_worker.data.components import ComponentCache
from flowmesh_worker.data.inputs import Inputs
from flowmesh_worker.data.outputs import Outputs
from flowmesh_worker.data.verified_chunks import VerifiedChunks
from flowmesh_worker.ipc.frames import HostInput, HostOutput

EXAMPLES = int(os.environ.get("FLOWMESH_LAW_EXAMPLES", "200"))
TENANTS, GROUPS = [f"team-{n}" for n in range(5)], ["x", "y"]
KINDS = ("dataset", "model", "adapter", "blob", "metrics")
TREES = ("model", "adapter")
KEYS = KeyRing.of(b"k" * 32)


class Model:
    """Who acts now and with which scopes, and the digests that each scope ever had."""

    def __init__(self) -> None:
        self.had: defaultdict[str, set[Digest]] = defaultdict(set)
        self.sizes: dict[Digest, int] = {}
        self.write = ""
        self.read: tuple[str, ...] = ()

    def acts(self, write: str, read: Iterable[str]) -> None:
        self.write, self.read = write, tuple(read)

    def may_read(self, digest: Digest) -> None:
        assert any(digest in self.had[s] for s in self.read), f"{self.read} never had {digest}"


class Watched:
    """The blobs of a scope: who reads and writes there is compared with the model."""

    def __init__(self, area: BlobArea, scope: str, model: Model) -> None:
        self._area, self._scope, self._model = area, scope, model

    async def get(self, digest: Digest) -> bytes:
        assert self._scope in self._model.read
        return await self._area.get(digest)

    async def fetch(self, digest: Digest, target: Path) -> int:
        assert self._scope in self._model.read
        return await self._area.fetch(digest, target)

    async def missing(
        self, digests: Iterable[Digest], sizes: Mapping[Digest, int] = NO_SIZES
    ) -> set[Digest]:
        assert self._scope in (*self._model.read, self._model.write)
        return await self._area.missing(digests, sizes)

    async def put(self, digest: Digest, data: bytes | Path) -> None:
        await self._area.put(digest, data)
        self._has_now(digest, os.stat(data).st_size if isinstance(data, Path) else len(data))

    async def put_spooled(self, spooled: SpooledFile) -> None:
        await self._area.put_spooled(spooled)
        self._has_now(spooled.digest, spooled.size_bytes)

    def spool(self, *, expected_bytes: int = 0) -> SpoolWriter:
        return self._area.spool(expected_bytes=expected_bytes)

    async def copy_from(self, scope: str, digest: Digest) -> bool:
        assert scope in self._model.read
        found = await self._area.copy_from(scope, digest)
        if found:
            assert digest in self._model.had[scope]
            self._has_now(digest, self._model.sizes[digest])
        return found

    def _has_now(self, digest: Digest, size: int) -> None:
        assert self._scope == self._model.write
        self._model.had[self._scope].add(digest)
        self._model.sizes[digest] = size


class Scopes(RuleBasedStateMachine):
    """Tenants, one shared worker, and a hostile one."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory(prefix="flowmesh-law-")
        self.model = Model()
        self.known: list[tuple[str, Artifact]] = []
        """References to everything that was ever stored or reported, and what they are of."""
        self.runs: list[tuple[ScopePlan, Artifact]] = []
        """The outputs of runs, with the scopes that the runs were pinned to."""
        self.count = 0
        root = Path(self.folder.name)
        store = open_store(self.place(root), spool_dir=root)
        self.close = store.close
        area, model = store._area, self.model
        self.store = replace(store, _area=lambda scope: Watched(area(scope), scope, model))
        self.policies = CachePolicyStore(store.records)
        self.references = ReferenceIssuer(KEYS, self.policies)
        revocations = Revocations(store.records, LineageIndex(store.records), lambda: 0.0)
        self.uploads = UploadStore(self.store, self.references, revocations)
        views = CachingViews(self.store, BlobCache(root / "cache", budget_bytes=1 << 30))
        components = ComponentCache(
            self.store, root / "trees", 1 << 30, in_use=tuple, on_change=lambda: None
        )
        self.verified = VerifiedChunks(root / "verified")
        self.inputs = Inputs(views, components, self.verified)
        self.outputs = Outputs(views)
        for tenant, kind in zip(TENANTS, ("dataset", *TREES), strict=False):
            self._upload(tenant, kind)
            self._step(tenant, self.known[-1][0], kind, is_private=False)

    def place(self, root: Path) -> str:
        return "memory:"

    def teardown(self) -> None:
        self.close()
        self.verified.close()
        self.runner.close()
        self.folder.cleanup()

    # -- tenants ---------------------------------------------------------------------------------

    @rule(group=st.sampled_from(GROUPS), members=st.sets(st.sampled_from(TENANTS)))
    def shares(self, group: str, members: set[str]) -> None:
        """An administrator says who is in a group; nobody is in two."""
        others = [p for p in self.policies.all() if p.name != group]
        members = members - {n for p in others for n in p.namespaces}
        names = tuple(sorted(members))
        policy = CachePolicy(name=group, scope=Sharing.GROUP, group=group, namespaces=names)
        self.runner.run(self.policies.replace_all([*others, policy] if names else others))

    @rule(tenant=st.sampled_from(TENANTS), kind=st.sampled_from(("dataset", *TREES)))
    def uploads_content(self, tenant: str, kind: str) -> None:
        self._upload(tenant, kind)

    def _upload(self, tenant: str, kind: str) -> None:
        own = self.policies.scopes(tenant).private
        self.model.acts(own, [own])
        if kind == "dataset":
            stored = self.runner.run(self.uploads.put_rows([{"text": self._secret()}], own))
        else:
            stored = self.runner.run(self.uploads.put_directory(kind, self._directory(), own))
        self.known.append((stored.reference, stored.artifact))

    @precondition(lambda self: self.known)
    @rule(tenant=st.sampled_from(TENANTS), data=st.data())
    def reads_a_reference(self, tenant: str, data: st.DataObject) -> None:
        """Content and lineage by a reference of anybody."""
        reference, _ = data.draw(st.sampled_from(self.known))
        scopes = self.policies.scopes(tenant)
        self.model.acts(scopes.private, scopes.readable)
        named = read_reference(reference)
        with suppress(FlowMeshError):
            self.runner.run(self.uploads.identity_of(named, scopes))
        with suppress(FlowMeshError, orjson.JSONDecodeError):
            artifact = self.runner.run(self.uploads.load(named.kind, reference, scopes))
            self.runner.run(self._download(artifact))

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def reads_an_output(self, data: st.DataObject) -> None:
        """A download of a run's output, and the next step of the run."""
        self._consume(*data.draw(st.sampled_from(self.runs)))

    def _consume(self, scopes: ScopePlan, output: Artifact) -> None:
        self.model.acts(scopes.publish, scopes.readable)
        with suppress(FlowMeshError):
            self.runner.run(self._download(output))
        self.runner.run(self._run(scopes, output, "metrics"))

    async def _download(self, artifact: Artifact) -> None:
        view = self.store.view(write=self.model.write, read=self.model.read)
        async for _ in download_of(view, (artifact,)).pieces:
            pass

    # -- workers ---------------------------------------------------------------------------------

    @precondition(lambda self: self.known)
    @rule(
        tenant=st.sampled_from(TENANTS),
        kind=st.sampled_from(KINDS),
        is_private=st.booleans(),
        data=st.data(),
    )
    def runs_a_step(self, tenant: str, kind: str, is_private: bool, data: st.DataObject) -> None:
        """A step with content by reference as its input, on the worker that all share."""
        self._step(tenant, data.draw(st.sampled_from(self.known))[0], kind, is_private=is_private)

    def _step(self, tenant: str, reference: str, kind: str, *, is_private: bool) -> None:
        scopes = self.policies.scopes(tenant)
        self.model.acts(scopes.private, scopes.readable)
        try:
            load = self.uploads.load(read_reference(reference).kind, reference, scopes)
            given = self.runner.run(load)
        except (FlowMeshError, orjson.JSONDecodeError):
            return
        scope = scopes.private if is_private else scopes.publish
        self.model.acts(scope, scopes.readable)
        self.runner.run(self._run(scopes, given, kind))

    @precondition(lambda self: self.known)
    @rule(tenant=st.sampled_from(TENANTS), kind=st.sampled_from(KINDS), data=st.data())
    def reports_by_hand(self, tenant: str, kind: str, data: st.DataObject) -> None:
        """The hostile worker names content of anybody in an output of its own attempt."""
        digests = sorted(set().union(*self.model.had.values()))
        chosen = data.draw(st.lists(st.sampled_from(digests), min_size=1, max_size=3, unique=True))
        scopes = self.policies.scopes(tenant)
        self.model.acts(scopes.publish, scopes.readable)
        manifest, artifact = forged(kind, {d: self.model.sizes[d] for d in chosen})
        if manifest is not None:
            put = blobs_of(self.store, scopes.publish).put(artifact.blob, manifest)
            self.runner.run(put)
        self.runner.run(self._end(scopes, artifact, {}))
        self._consume(scopes, artifact)

    @precondition(lambda self: self.runs)
    @rule(tenant=st.sampled_from(TENANTS), data=st.data())
    def repeats_anothers_report(self, tenant: str, data: st.DataObject) -> None:
        """The hostile worker reports an output of another tenant's run as it is."""
        _, artifact = data.draw(st.sampled_from([*self.runs, *((None, a) for _, a in self.known)]))
        scopes = self.policies.scopes(tenant)
        self.model.acts(scopes.publish, scopes.readable)
        self.runner.run(self._end(scopes, artifact, {}))
        self._consume(scopes, artifact)

    async def _run(self, scopes: ScopePlan, given: Artifact, kind: str) -> None:
        token = token_of(self.model.write, scopes.readable)
        action = digest_bytes(self._secret().encode())
        inputs = {"in": InputRef(given)}
        assignment = Assignment("a", action, action, "test.noop", 1, 1, {}, {}, inputs, token=token)
        async with AsyncExitStack() as pins:
            try:
                found = await self.inputs.fetch(assignment, pins)
            except* FlowMeshError:
                found = {}
            for digest in (d for one in found.values() for d in seen(one)):
                self.model.may_read(digest)
        made = {"out": self._output(kind)}
        outputs, inline = await self.outputs.store(made, None, token)
        await self._end(scopes, outputs["out"], inline)

    async def _end(
        self, scopes: ScopePlan, artifact: Artifact, inline: dict[Digest, bytes]
    ) -> None:
        """The run ends: what came inside its record is put, the rest copied to its scope."""
        view = self.store.view(write=self.model.write, read=scopes.readable)
        for digest, data in inline.items():
            await view.put(digest, data)
        await view.copy(artifact.blobs())
        self.runs.append((scopes, artifact))
        reference = self.references.issue(scopes.publish, artifact.kind, artifact.blob)
        self.known.append((reference, artifact))

    # -- content ---------------------------------------------------------------------------------

    def _secret(self) -> str:
        self.count += 1
        return f"content {self.count} " * 500

    def _directory(self) -> Path:
        text = self._secret()
        directory = Path(self.folder.name, f"made-{self.count}")
        directory.mkdir()
        (directory / "config.json").write_text(text)
        return directory

    def _output(self, kind: str) -> HostOutput:
        if kind in TREES:
            return HostOutput("tree", path=str(self._directory()))
        if kind == "dataset":
            from flowmesh_store.datasets import rows_to_chunks

            manifest, contents = rows_to_chunks([{"text": self._secret()}])
            return HostOutput("dataset", manifest=manifest, contents=contents)
        if kind == "metrics":
            value = {"text": self._secret()}
            data = canonical_bytes(value)
            digest = digest_bytes(data)
            return HostOutput("metrics", contents={digest: data}, value=value, main=digest)
        path = self._directory() / "config.json"
        return HostOutput("blob", path=str(path))


def forged(kind: str, sizes: dict[Digest, int]) -> tuple[bytes | None, Artifact]:
    """Returns an artifact of a kind that names digests, and the manifest that is to be put."""
    if kind == "dataset":
        schema = Schema((Column("text", ColumnType.STRING),))
        chunks = tuple(ChunkRef(rows=d, blob=d, count=1, bytes=size) for d, size in sizes.items())
        manifest = Manifest(schema, chunks)
        artifact = dataset_artifact(manifest)
        return encode_manifest(manifest), artifact
    if kind in TREES:
        files = [TreeFile(f"file-{n}", *one) for n, one in enumerate(sizes.items())]
        data = encode_tree(files)
        return data, Artifact(kind, tree_identity(kind, files), digest_bytes(data))
    return None, content_artifact(kind, next(iter(sizes)))


def seen(found: HostInput) -> list[Digest]:
    """Returns the digests of the bytes that an engine is shown."""
    files = [
        f
        for path in map(Path, found.paths)
        for f in ([path] if path.is_file() else path.rglob("*"))
    ]
    return [digest_bytes(f.read_bytes()) for f in files if f.is_file()]


class InDirectory(Scopes):
    """The same on a directory."""

    def place(self, root: Path) -> str:
        return str(root / "store")


def settings_of(examples: int) -> settings:
    return settings(max_examples=examples, stateful_step_count=15, deadline=None)


Scopes.TestCase.settings = settings_of(EXAMPLES)
InDirectory.TestCase.settings = settings_of(max(1, EXAMPLES // 4))
TestScopes = pytest.mark.slow(Scopes.TestCase)
TestScopesInADirectory = pytest.mark.slow(InDirectory.TestCase)


@pytest.mark.slow
def test_the_scope_invariants_hold_in_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = versitygw.binary()
    assert program is not None, "run `make bin/versitygw`"
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", versitygw.ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", versitygw.SECRET_KEY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with versitygw.running(program, tmp_path) as server:

        class InBucket(Scopes):
            def place(self, root: Path) -> str:
                return server.url(root.name)

        run_state_machine_as_test(InBucket, settings=settings_of(max(1, EXAMPLES // 40)))
