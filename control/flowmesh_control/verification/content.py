"""Reads the bytes of artifacts again and compares them with their digests and identities."""

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path

from flowmesh_control.loop.content_comparison import compare_rows
from flowmesh_control.verification.broken_link import BrokenLinkError
from flowmesh_core.dataset import decode_manifest_of
from flowmesh_core.dataset.manifest import Manifest, dataset_digest
from flowmesh_core.errors import (
    FlowMeshError,
    IdentityMismatchError,
    LostBlobError,
    StoreError,
    StoreUnavailableError,
)
from flowmesh_core.identity import canonical_bytes
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.protocol.results import Artifact, require_identity
from flowmesh_core.units import Digest
from flowmesh_store.blobs import Blobs
from flowmesh_store.tree import read_tree_of


class ContentVerification:
    """Verifies the content of one run; each blob is read once.

    Attributes:
        inline: content that is only in records, by digest; it has been verified there.
        blobs: how many were read; ``read_bytes`` is their size.
    """

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._seen: set[tuple[str, Digest]] = set()
        self.inline: dict[Digest, bytes] = {}
        self.blobs = 0
        self.read_bytes = 0

    def add_inline(self, key: str, inline: Mapping[Digest, bytes]) -> None:
        """Adds the content inside a record.

        Raises:
            BrokenLinkError: it has another digest than the record says.
        """
        for digest, data in inline.items():
            if digest_bytes(data) != digest:
                raise BrokenLinkError("record", key, f"its inline content is not {digest}")
        self.inline.update(inline)

    async def verify(self, name: str, artifact: Artifact, *, stored_whole: bool) -> None:
        """Compares an artifact with its identity, and all of its bytes with their digests.

        Args:
            name: of the artifact, for the error.
            artifact: as a sealed record has it.
            stored_whole: whether all of it must be stored as blobs, as an output of a run must.
                Elsewhere small content and composed manifests are in records only.

        Raises:
            BrokenLinkError: something is missing, damaged or not what its identity says.
            StoreUnavailableError: the store does not answer.
        """
        try:
            if artifact.kind in ("model", "adapter"):
                await self._verify_tree(artifact)
            elif artifact.kind == "dataset":
                await self._verify_dataset(artifact, stored_whole=stored_whole)
            else:
                await self._verify_bytes(artifact, stored_whole=stored_whole)
        except BrokenLinkError:
            raise
        except IdentityMismatchError as e:
            raise BrokenLinkError("identity", name, e.message) from e
        except LostBlobError as e:
            raise BrokenLinkError("blob", e.digest or name, f"{name}: {e.message}") from e
        except StoreUnavailableError:
            raise
        except StoreError as e:
            raise BrokenLinkError("blob", name, e.message) from e
        except (FlowMeshError, MemoryError) as e:
            raise BrokenLinkError("identity", name, str(e)) from e

    async def _verify_bytes(self, artifact: Artifact, *, stored_whole: bool) -> None:
        value = None if artifact.value is None else canonical_bytes(artifact.value)
        require_identity(artifact, value)
        if value is None or stored_whole:
            await self._read(artifact.blob, stored=stored_whole)

    async def _verify_tree(self, artifact: Artifact) -> None:
        tree = await read_tree_of(self._blobs, artifact.blob, artifact.kind, artifact.digest)
        self._count(artifact.blob, 0)
        with tempfile.TemporaryDirectory(prefix="flowmesh-verify-") as scratch:
            target = Path(scratch) / "file"
            for file in tree.files:
                if self._count(file.digest, file.bytes):
                    await self._blobs.fetch(file.digest, target)  # verifies its digest
                    target.unlink()

    async def _verify_dataset(self, artifact: Artifact, *, stored_whole: bool) -> None:
        manifest = artifact.manifest
        if manifest is None or stored_whole:
            data = await self._read(artifact.blob, stored=stored_whole)
            manifest = decode_manifest_of(data, artifact.digest, artifact.blob)
        if dataset_digest(manifest) != artifact.digest:
            raise IdentityMismatchError(
                f"the manifest is not that of the data set with the identity {artifact.digest}",
                artifact.blob,
            )
        await self._verify_chunks(manifest, stored_whole=stored_whole)

    async def _verify_chunks(self, manifest: Manifest, *, stored_whole: bool) -> None:
        for chunk in manifest.chunks:
            seen = (f"{chunk.rows} {stored_whole}", chunk.blob)
            if seen not in self._seen:
                data = await self._read(chunk.blob, stored=stored_whole)
                await asyncio.to_thread(compare_rows, data, manifest.schema, chunk)
                self._seen.add(seen)

    async def _read(self, blob: Digest, *, stored: bool) -> bytes:
        data = None if stored else self.inline.get(blob)
        if data is None:
            data = await self._blobs.get(blob)
            self._count(blob, len(data))
        return data

    def _count(self, blob: Digest, size_bytes: int) -> bool:
        """Counts a blob; returns whether it is new."""
        if ("", blob) in self._seen:
            return False
        self._seen.add(("", blob))
        self.blobs += 1
        self.read_bytes += size_bytes
        return True
