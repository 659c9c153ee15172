"""Finds what runs have published, for inputs of workflows that name an output of one."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from flowmesh_api.v1.enums import ENDED_PHASES, Phase
from flowmesh_api.v1.runs import RunStatus, RunSummary
from flowmesh_control.errors import NotFoundError
from flowmesh_control.queries.run_views import RunViews
from flowmesh_core.spec.suggestions import did_you_mean


class RunOutputs:
    """Looks up outputs of runs."""

    def __init__(self, views: RunViews) -> None:
        self._views = views

    async def references(
        self, texts: Iterable[str], namespace: str
    ) -> dict[str, str | NotFoundError]:
        """Returns the reference of each output's content, or why there is none.

        Each run is read once, however many of its outputs are named, and others are served between
        two runs.

        Args:
            texts: ``RUN/OUTPUT``. A run is named by its uid, by the beginning of one, or by its
                workflow, of which the newest run that succeeded is meant.
            namespace: of the runs; those of others do not exist here.

        Raises:
            DamagedRecordError: a record of a run cannot be read.
        """
        found: dict[str, str | NotFoundError] = {}
        statuses: dict[str, RunStatus | NotFoundError] = {}
        known = self._views.summaries()
        for text in texts:
            run, _, name = text.rpartition("/")
            if not run or not name or "/" in run:
                found[text] = NotFoundError(
                    f"{text!r} is not an output: expected RUN/OUTPUT",
                    remedy="`fmesh outputs RUN` shows the outputs of a run",
                )
                continue
            if run not in statuses:
                await asyncio.sleep(0)
                statuses[run] = await self._status(run, namespace, known)
            found[text] = _reference(statuses[run], name)
        return found

    async def _status(
        self, run: str, namespace: str, known: Sequence[RunSummary]
    ) -> RunStatus | NotFoundError:
        named = await self._views.runs_named(run, known)
        uids = [uid for uid, of in named if of == namespace]
        if not uids:
            return NotFoundError(
                f"there is no run {run!r} in namespace {namespace}",
                remedy="`fmesh list` lists the runs",
            )
        succeeded = {s.uid for s in known if s.name == run and s.phase == Phase.SUCCEEDED}
        uid = next((uid for uid in uids if uid in succeeded), uids[0])
        try:
            return await self._views.status(uid)
        except NotFoundError as e:  # it was deleted since
            return e


def _reference(status: RunStatus | NotFoundError, name: str) -> str | NotFoundError:
    if isinstance(status, NotFoundError):
        return status
    try:
        reference: str = _described(status, name)["reference"]
    except NotFoundError as e:
        return e
    return reference


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
