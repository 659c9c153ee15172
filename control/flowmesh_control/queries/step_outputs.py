"""Reads what steps of runs have made, whether it is an output or not; called by the API."""

from collections.abc import Sequence
from dataclasses import dataclass

from flowmesh_control.errors import NotFoundError
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.records.run_artifacts import made_by_steps
from flowmesh_control.verification.result_records import actions_of
from flowmesh_core.graph.plan import StepSource
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.units import Digest
from flowmesh_store.action_cache import ActionCache
from flowmesh_store.blobs import Blobs, BlobViews

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What a step of a run has made on one port.

    Attributes:
        actions: whose results the step used.
    """

    uid: str
    artifact: Artifact
    actions: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class StepOutputs:
    """Reads the artifacts of steps."""

    views: RunViews
    store: BlobViews
    cache: ActionCache

    async def find(self, uid: str, name: str) -> StepOutput:
        """Returns what a step made on a port.

        Args:
            uid: of the run, which need not have ended.
            name: ``STEP.PORT``.

        Raises:
            NotFoundError: there is no such run, or it has made nothing of this name.
        """
        lines = await self.views.lines(uid)
        made = {
            f"{path}.{port}": (path, artifact)
            for path, ports in made_by_steps(lines).items()
            for port, artifact in ports.items()
        }
        if name not in made:
            raise NotFoundError(
                f"run {uid} has made no {name!r}{did_you_mean(name, made)}",
                where="outputs",
                remedy=f"it has made {', '.join(list(made)[:_SHOWN]) or 'nothing'}",
            )
        path, artifact = made[name]
        return StepOutput(uid, artifact, tuple(actions_of(lines).get(path, {}).values()))

    async def makers(self, uid: str, name: str) -> tuple[str, ...]:
        """Returns the steps that make an output of a run, or a step's port; none for an input."""
        if "." in name:
            return (name.rpartition(".")[0],)
        plan = await self.views.plan(uid)
        sources = plan.outputs.get(name, ()) if plan is not None else ()
        return tuple(s.step for s in sources if isinstance(s, StepSource))

    async def blobs(self, output: StepOutput) -> Blobs:
        """Returns the blobs to read an output, after those that came with results are stored.

        Raises:
            NotFoundError: the run was deleted.
            StoreError: they could not be stored.
        """
        scopes = await self.views.output_scopes(output.uid)
        blobs = self.store.view(write=scopes[0], read=scopes)
        if missing := await blobs.missing(set(output.artifact.blobs())):
            for digest, data in (await self._small(output, set(missing), scopes)).items():
                await blobs.put(digest, data)
        return blobs

    async def _small(
        self, output: StepOutput, wanted: set[Digest], scopes: Sequence[str]
    ) -> dict[Digest, bytes]:
        """Returns small blobs that came with results: of a live run, or in the records."""
        live = self.views.inline(output.uid)
        found = {digest: live[digest] for digest in wanted & live.keys()}
        for action_id in output.actions:
            if wanted <= found.keys():
                break
            stored = await self.cache.lookup(action_id, scopes)
            if stored is not None:
                inline = stored.result.inline
                found |= {digest: inline[digest] for digest in wanted & inline.keys()}
        return found
