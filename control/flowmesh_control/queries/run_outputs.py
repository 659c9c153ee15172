"""Finds what runs have published, for inputs of workflows that name an output of one."""

from typing import Any

from flowmesh_api.v1.enums import ENDED_PHASES, Phase
from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.errors import NotFoundError
from flowmesh_control.queries.run_views import RunViews
from flowmesh_core.spec.suggestions import did_you_mean


class RunOutputs:
    """Looks up outputs of runs."""

    def __init__(self, views: RunViews) -> None:
        self._views = views

    async def reference(self, text: str, namespace: str) -> str:
        """Returns the reference of an output's content.

        Args:
            text: ``RUN/OUTPUT``. A run is named by its uid, by the beginning of one, or by its
                workflow, of which the newest run that succeeded is meant.
            namespace: of the run; runs of others do not exist here.

        Raises:
            NotFoundError: there is no such run, or it has not published that output, or its content
                was revoked.
            DamagedRecordError: a record of the run cannot be read.
        """
        run, _, name = text.rpartition("/")
        if not run or not name or "/" in run:
            raise NotFoundError(
                f"{text!r} is not an output: expected RUN/OUTPUT",
                remedy="`fmesh outputs RUN` shows the outputs of a run",
            )
        status = await self._views.status(await self._uid(run, namespace))
        reference: str = _described(status, name)["reference"]
        return reference

    async def _uid(self, run: str, namespace: str) -> str:
        found = [uid for uid, of in await self._views.runs_named(run) if of == namespace]
        if not found:
            raise NotFoundError(
                f"there is no run {run!r} in namespace {namespace}",
                remedy="`fmesh list` lists the runs",
            )
        succeeded = {
            s.uid
            for s in self._views.summaries(namespace)
            if s.name == run and s.phase == Phase.SUCCEEDED
        }
        return next((uid for uid in found if uid in succeeded), found[0])


def _described(status: RunStatus, name: str) -> dict[str, Any]:
    """Returns what a status says of an output that can be used."""
    run = f"run {status.uid}"
    if status.phase != Phase.SUCCEEDED:
        ended = status.phase in ENDED_PHASES
        remedy = "run it again" if ended else f"`fmesh watch {status.uid}` follows it to its end"
        raise NotFoundError(f"{run} has not succeeded ({status.phase})", remedy=remedy)
    if name not in status.outputs:
        hint = did_you_mean(name, status.outputs)
        raise NotFoundError(f"{run} has no output {name!r}{hint}", remedy="correct the name")
    described = status.outputs[name]
    if described is None:
        raise NotFoundError(
            f"{run} has not published {name!r}: its step was skipped", remedy="name another run"
        )
    if described.get("revoked"):
        raise NotFoundError(
            f"the content of {name!r} of {run} was revoked", remedy="name another run"
        )
    if "parts" in described:
        raise NotFoundError(
            f"{name!r} of {run} is {len(described['parts'])} data sets, one after the other",
            remedy="let a step of that run join them, and name its output",
        )
    return described
