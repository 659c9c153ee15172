"""Stores the outputs of an attempt by content, or puts small ones into its report."""

import asyncio
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.catalog.resolved_contract import output_ports
from flowmesh_core.dataset import dataset_digest, encode_manifest
from flowmesh_core.errors import FailureKind
from flowmesh_core.identity import digest_bytes, tree_identity
from flowmesh_core.protocol.attempt_grants import read_grant
from flowmesh_core.protocol.messages import FailureReport
from flowmesh_core.protocol.results import INLINE_BYTES_MAX, Artifact, content_artifact
from flowmesh_core.units import Digest
from flowmesh_store.blobs import BlobView, BlobViews
from flowmesh_store.regular_files import open_regular
from flowmesh_store.spool import SpooledFile
from flowmesh_store.tree import store_tree
from flowmesh_worker.data.store_retry import retry_while_unavailable
from flowmesh_worker.ipc.frames import HostOutput

_AT_ONCE = 8
_MANIFEST_CHUNKS_INLINE = 4096
"""Manifests with more chunks are read from their blob instead of carried in messages."""

Stored = tuple[dict[str, Artifact], dict[Digest, bytes]]


class Outputs:
    """Stores the outputs of all attempts of a worker, a limited number of blobs at once."""

    def __init__(self, views: BlobViews) -> None:
        self._views = views
        self._limit = asyncio.Semaphore(_AT_ONCE)
        self.stored_bytes = 0

    @staticmethod
    def inline(outputs: dict[str, HostOutput]) -> Stored | None:
        """Returns artifacts and bytes if all outputs fit into the report, else None."""
        artifacts: dict[str, Artifact] = {}
        inline: dict[Digest, bytes] = {}
        for port, output in outputs.items():
            if output.path or output.files:
                return None
            artifact, blobs = _described(output)
            if sum(map(len, blobs.values())) > INLINE_BYTES_MAX:
                return None
            artifacts[port] = artifact
            inline |= blobs
        return artifacts, inline

    async def store(
        self, outputs: dict[str, HostOutput], contract: EngineContract | None, token: str
    ) -> Stored:
        """Stores the outputs that are too large for the report; returns artifacts and inline bytes.

        Args:
            outputs: by port.
            contract: of their engine.
            token: the attempt's; says the scope that they belong to.

        Raises:
            StoreError: the store is full or does not answer.
            OSError: a file cannot be read.
        """
        grant = read_grant(token)
        blobs = self._views.view(write=grant.write_scope, read=grant.readable, token=token)
        artifacts: dict[str, Artifact] = {}
        inline: dict[Digest, bytes] = {}
        for port, output in outputs.items():
            if output.kind == "tree":
                artifacts[port] = await self._tree(output, _kind(contract, port), blobs)
            elif output.kind == "blob" and output.path:
                artifacts[port] = await self._file(Path(output.path), blobs)
            else:
                artifact, contents = _described(output)
                artifacts[port] = artifact
                if not output.files and sum(map(len, contents.values())) <= INLINE_BYTES_MAX:
                    inline |= contents
                else:
                    files = {digest: Path(path) for digest, path in output.files.items()}
                    await self._put_all(contents | files, blobs)
                    self.stored_bytes += artifact.size_bytes
        return artifacts, inline

    async def _put_all(self, contents: dict[Digest, bytes | Path], blobs: BlobView) -> None:
        async with asyncio.TaskGroup() as group:
            for digest, content in contents.items():
                group.create_task(self._put(digest, content, blobs))

    async def _put(self, digest: Digest, content: bytes | Path, blobs: BlobView) -> None:
        async with self._limit:
            await retry_while_unavailable(lambda: blobs.put(digest, content))

    async def _tree(self, output: HostOutput, kind: str, blobs: BlobView) -> Artifact:
        tree = await retry_while_unavailable(lambda: store_tree(blobs, Path(output.path)))
        self.stored_bytes += tree.size_bytes
        return Artifact(kind, tree_identity(kind, tree.files), tree.digest, tree.size_bytes)

    async def _file(self, path: Path, blobs: BlobView) -> Artifact:
        """Stores a file whose digest is not known: it is hashed while it is spooled."""
        spooled = await asyncio.to_thread(_spool, path, blobs)
        await blobs.put_spooled(spooled)
        self.stored_bytes += spooled.size_bytes
        return content_artifact("blob", spooled.digest, spooled.size_bytes)


def _spool(path: Path, blobs: BlobView) -> SpooledFile:
    descriptor, found = open_regular(path)
    try:
        with blobs.spool(expected_bytes=found.st_size) as writer:
            writer.copy_from(descriptor)
            return writer.finish()
    finally:
        os.close(descriptor)


def missing_output_failure(
    contract: EngineContract | None, params: Mapping[str, Any], given: Collection[str]
) -> FailureReport | None:
    """Returns a failure that names the required outputs that an engine did not return, or None."""
    ports = output_ports(contract, params) if contract is not None else ()
    missing = [p.name for p in ports if p.required and p.name not in given]
    if contract is None or not missing:
        return None
    return FailureReport(
        FailureKind.ENGINE.value,
        f"{contract.name} returned no output {', '.join(map(repr, missing))}",
        "fix the engine: its result must have every output port of the contract",
    )


def _described(output: HostOutput) -> tuple[Artifact, dict[Digest, bytes]]:
    """Returns an artifact and the blobs that it consists of, apart from files."""
    if output.kind == "dataset":
        assert output.manifest is not None
        manifest = output.manifest
        encoded = encode_manifest(manifest)
        blob = digest_bytes(encoded)
        artifact = Artifact(
            kind="dataset",
            digest=dataset_digest(manifest),
            blob=blob,
            size_bytes=manifest.blob_bytes,
            rows=manifest.row_count,
            manifest=manifest if len(manifest.chunks) <= _MANIFEST_CHUNKS_INLINE else None,
        )
        return artifact, {**output.contents, blob: encoded}
    data = output.contents[output.main]
    artifact = content_artifact(output.kind, output.main, len(data), output.value)
    return artifact, output.contents


def _kind(contract: EngineContract | None, port: str) -> str:
    declared = contract.output_port(port) if contract is not None else None
    return declared.kind.value if declared is not None else "model"
