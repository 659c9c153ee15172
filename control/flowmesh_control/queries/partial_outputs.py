"""Reads what runs have published of their outputs; called by the API, and for batches."""

from collections.abc import Iterable
from dataclasses import dataclass

from flowmesh_control.errors import NotFoundError
from flowmesh_control.queries.run_views import RunViews
from flowmesh_core.machine.published_parts import PublishedPart
from flowmesh_core.protocol.results import Artifact
from flowmesh_store.blobs import Blobs, BlobViews


@dataclass(frozen=True, slots=True)
class PartialOutputs:
    """Reads the published parts of outputs."""

    views: RunViews
    store: BlobViews

    async def parts(self, uid: str, name: str) -> tuple[Blobs, tuple[PublishedPart, ...]]:
        """Returns the parts of an output in the order of their rows, and the blobs to read them.

        Raises:
            NotFoundError: there is no such run or output.
            StoreError: small blobs that came with results could not be stored.
        """
        found = await self.views.partial_outputs(uid)
        if name not in found:
            raise NotFoundError(
                f"run {uid} has no output {name!r}",
                where="outputs",
                remedy=f"it has {', '.join(found) or 'none'}",
            )
        return await self._blobs(uid, (part.artifact for part in found[name])), found[name]

    async def artifacts(self, uid: str, name: str) -> tuple[Blobs, tuple[Artifact, ...]]:
        """Returns the artifacts of an output's parts; as :meth:`parts`."""
        blobs, parts = await self.parts(uid, name)
        return blobs, tuple(part.artifact for part in parts)

    async def _blobs(self, uid: str, artifacts: Iterable[Artifact]) -> Blobs:
        """Returns the blobs of a run, after those that came with results are stored."""
        scopes = await self.views.output_scopes(uid)
        blobs = self.store.view(write=scopes[0], read=scopes)
        inline = self.views.inline(uid)
        for artifact in artifacts:
            for digest in artifact.blobs():
                if digest in inline:
                    await blobs.put(digest, inline[digest])
        return blobs
