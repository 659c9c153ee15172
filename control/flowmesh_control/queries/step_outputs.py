"""Reads what the steps of a run made, outputs of the workflow or not; called by the API."""

from collections.abc import Sequence
from dataclasses import dataclass

from flowmesh_control.errors import NotFoundError
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.records.run_artifacts import actions_of, made_by_steps
from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.units import Digest
from flowmesh_store.action_cache import ActionCache
from flowmesh_store.blobs import Blobs, BlobViews

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class StepOutputs:
    """Reads the artifacts of steps.

    Small content of an artifact that is no output of the workflow is only in the records of the
    results that have it. It is stored as blobs when it is read.
    """

    views: RunViews
    store: BlobViews
    cache: ActionCache

    async def read(self, uid: str, name: str) -> tuple[Blobs, Artifact]:
        """Returns what a step made on a port, and the blobs to read it.

        Args:
            uid: of the run, which need not have ended.
            name: ``STEP.PORT``.

        Raises:
            NotFoundError: there is no such run, or it has made nothing of this name.
            StoreError: small blobs that came with results could not be stored.
        """
        lines = await self.views.lines(uid)
        found = {
            f"{path}.{port}": (path, artifact)
            for path, ports in made_by_steps(lines).items()
            for port, artifact in ports.items()
        }
        if name not in found:
            raise NotFoundError(
                f"run {uid} has made no {name!r}{did_you_mean(name, found)}",
                where="outputs",
                remedy=f"it has made {', '.join(list(found)[:_SHOWN]) or 'nothing'}",
            )
        step, artifact = found[name]
        scopes = await self.views.output_scopes(uid)
        blobs = self.store.view(write=scopes[0], read=scopes)
        needed = set(artifact.blobs())
        if artifact.manifest is not None:
            needed.discard(artifact.blob)  # the ledger has it
        missing = await blobs.missing(needed)
        if missing:
            inline = self.views.inline(uid) or await self._inline(step, lines, scopes)
            for digest in missing & inline.keys():
                await blobs.put(digest, inline[digest])
        return blobs, artifact

    async def _inline(
        self, step: str, lines: Sequence[Line], scopes: Sequence[str]
    ) -> dict[Digest, bytes]:
        """Returns the content that is only in the records of a step's results."""
        inline: dict[Digest, bytes] = {}
        for action_id in actions_of(lines).get(step, {}).values():
            found = await self.cache.lookup(action_id, scopes)
            if found is not None:
                inline.update(found.result.inline)
        return inline
