"""Reads what runs have published: parts of outputs, and what steps made.

Called by the API, and for batches.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from flowmesh_control.errors import NotFoundError
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.records.run_artifacts import made_by_steps
from flowmesh_core.machine.published_parts import PublishedPart
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_store.blobs import Blobs, BlobViews

_SHOWN = 12


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

    async def of_step(self, uid: str, name: str) -> tuple[Blobs, Artifact]:
        """Returns what a step made on a port, and the blobs to read it.

        Args:
            uid: of the run, which need not have ended.
            name: ``STEP.PORT``.

        Raises:
            NotFoundError: there is no such run, or it has made nothing of this name.
            StoreError: small blobs that came with results could not be stored.
        """
        steps = made_by_steps(await self.views.lines(uid))
        made = {f"{path}.{port}": a for path, ports in steps.items() for port, a in ports.items()}
        if name not in made:
            raise NotFoundError(
                f"run {uid} has made no {name!r}{did_you_mean(name, made)}",
                where="outputs",
                remedy=f"it has made {', '.join(list(made)[:_SHOWN]) or 'nothing'}",
            )
        return await self._blobs(uid, (made[name],)), made[name]

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
