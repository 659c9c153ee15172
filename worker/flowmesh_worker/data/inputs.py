"""Fetches the inputs of an attempt to the local disk while other attempts run.

Blobs are read through a caching store that verifies them, and are pinned until the attempt ends.
Inputs that came with the assignment stay in memory. What an identity says of a manifest, of metrics
and of a blob is compared here; of rows, by the host that reads them.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack

import msgspec

from flowmesh_core.dataset import Manifest, decode_manifest_of
from flowmesh_core.errors import BY_IDENTITY
from flowmesh_core.identity import canonical_bytes
from flowmesh_core.protocol.attempt_grants import read_grant
from flowmesh_core.protocol.messages import Assignment, FailureReport, InputRef
from flowmesh_core.protocol.results import require_identity
from flowmesh_core.units import Digest
from flowmesh_store.cache.caching_blobs import CachingBlobs, CachingViews
from flowmesh_worker.data.components import ComponentCache
from flowmesh_worker.data.store_retry import retry_while_unavailable
from flowmesh_worker.data.verified_chunks import VerifiedChunks
from flowmesh_worker.data.weights_check import weights_failure
from flowmesh_worker.ipc.frames import HostInput

_AT_ONCE = 16
_TREES = frozenset({"model", "adapter"})


class Inputs:
    """Fetches the inputs of all attempts of a worker, a limited number of blobs at once."""

    def __init__(
        self, views: CachingViews, components: ComponentCache, verified: VerifiedChunks
    ) -> None:
        self._views = views
        self._components = components
        self._verified = verified
        self._limit = asyncio.Semaphore(_AT_ONCE)

    def inline_inputs(self, assignment: Assignment) -> dict[str, HostInput] | None:
        """Returns the inputs if all of them came with the assignment, else None.

        Raises:
            IdentityMismatchError: the content of one is not what its identity says.
        """
        found: dict[str, HostInput] = {}
        for port, ref in assignment.inputs.items():
            given = self._inline(ref, assignment)
            if given is None:
                return None
            found[port] = given
        return found

    async def misfit(self, assignment: Assignment) -> FailureReport | None:
        """Returns the failure of an attempt whose model cannot fit its memory, before a fetch."""
        return await weights_failure(assignment, self._blobs(assignment), self._components)

    async def fetch(self, assignment: Assignment, pins: AsyncExitStack) -> dict[str, HostInput]:
        """Fetches all inputs concurrently; they are pinned until the stack is closed.

        Raises:
            StoreError: an input is missing, corrupt, not what its identity says, or does not fit
                the disk.
        """
        blobs = self._blobs(assignment)
        async with asyncio.TaskGroup() as group:
            tasks = {
                port: group.create_task(self._one(ref, assignment, blobs, pins))
                for port, ref in assignment.inputs.items()
            }
        return {port: task.result() for port, task in tasks.items()}

    def _blobs(self, assignment: Assignment) -> CachingBlobs:
        grant = read_grant(assignment.token)
        return self._views.view(
            write=grant.write_scope, read=grant.readable, token=assignment.token
        )

    async def _one(
        self, ref: InputRef, assignment: Assignment, blobs: CachingBlobs, pins: AsyncExitStack
    ) -> HostInput:
        artifact = ref.artifact
        inline = self._inline(ref, assignment)
        if inline is not None:
            return inline
        scopes = read_grant(assignment.token).readable
        if artifact.kind in _TREES:
            tree = self._components.pinned(artifact, scopes, assignment.token)
            path = await pins.enter_async_context(tree)
            return HostInput("tree", artifact.digest, (str(path),))
        if artifact.kind == "dataset":
            return await self._dataset(ref, blobs, scopes, pins)
        require_identity(artifact)
        return HostInput("blob", artifact.digest, (await self._file(artifact.blob, blobs, pins),))

    def remember(
        self,
        assignment: Assignment,
        inputs: Mapping[str, HostInput],
        verified: Mapping[str, Iterable[int]],
    ) -> None:
        """Remembers the chunks that a host has compared with their identity, by port."""
        scopes = read_grant(assignment.token).readable
        for port, numbers in verified.items():
            manifest = inputs[port].manifest
            if manifest is not None:
                self._verified.add(manifest, numbers, scopes)

    @staticmethod
    def with_manifests(assignment: Assignment, failure: FailureReport) -> FailureReport:
        """Adds to a mismatch the manifests that only the worker has read.

        The control plane finds the producer of a chunk by the manifests that it knows.
        """
        inputs = (ref.artifact for ref in assignment.inputs.values())
        unknown = [a.blob for a in inputs if a.kind == "dataset" and a.manifest is None]
        if failure.reason != BY_IDENTITY or not unknown:
            return failure
        detail = " ".join([failure.detail, *unknown])
        return msgspec.structs.replace(failure, detail=detail)

    async def _dataset(
        self, ref: InputRef, blobs: CachingBlobs, scopes: tuple[str, ...], pins: AsyncExitStack
    ) -> HostInput:
        manifest = ref.artifact.manifest or await self._manifest(ref, blobs)
        chunks = [c.blob for c in manifest.chunks if c.blob not in ref.inline]
        # No gather: what goes on there after an error pins chunks that nothing releases.
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._file(c, blobs, pins)) for c in chunks]
        paths = tuple(task.result() for task in tasks)
        return self._of_dataset(ref, paths, manifest, scopes)

    @staticmethod
    async def _manifest(ref: InputRef, blobs: CachingBlobs) -> Manifest:
        blob = ref.artifact.blob
        data = ref.inline.get(blob)
        if data is None:
            data = await retry_while_unavailable(lambda: blobs.get(blob))
        return decode_manifest_of(data, ref.artifact.digest, blob)

    async def _file(self, blob: Digest, blobs: CachingBlobs, pins: AsyncExitStack) -> str:
        async with self._limit:
            return str(
                await retry_while_unavailable(lambda: pins.enter_async_context(blobs.pinned(blob)))
            )

    def _inline(self, ref: InputRef, assignment: Assignment) -> HostInput | None:
        artifact = ref.artifact
        if artifact.kind == "dataset":
            manifest = artifact.manifest
            if manifest is not None and all(c.blob in ref.inline for c in manifest.chunks):
                return self._of_dataset(ref, (), manifest, read_grant(assignment.token).readable)
            return None
        if artifact.kind in _TREES:
            return None
        if artifact.blob in ref.inline:
            contents = ref.inline
        elif artifact.value is not None:
            contents = {artifact.blob: canonical_bytes(artifact.value)}
        else:
            return None
        require_identity(artifact, contents[artifact.blob])
        return HostInput("blob", artifact.digest, (), None, contents, artifact.blob)

    def _of_dataset(
        self, ref: InputRef, paths: tuple[str, ...], manifest: Manifest, scopes: tuple[str, ...]
    ) -> HostInput:
        verified = self._verified.numbers(manifest, scopes)
        digest = ref.artifact.digest
        return HostInput("dataset", digest, paths, manifest, ref.inline, verified=verified)
