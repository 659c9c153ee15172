"""Workflows become objects of the cluster, created with the user's own rights.

What is local is uploaded to the gateway first and named by its reference, so that the object means
the same to everybody who reads it.
"""

import secrets
import time
from typing import Any

import msgspec

from flowmesh_api.v1.plan import Forecast
from flowmesh_api.v1.runs import RunAccepted
from flowmesh_cli.cluster.gateway import ClusterGateway
from flowmesh_cli.cluster.objects import ExistsError, Object
from flowmesh_cli.errors import CliError, FilesError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.workflows.local_inputs import local_inputs
from flowmesh_cli.workflows.sources import Source
from flowmesh_cli.workflows.upload import upload_inputs
from flowmesh_core.decoding import decode
from flowmesh_core.errors import SpecError

ENDED = ("Succeeded", "Failed", "Cancelled")
_WITHIN_S = 60.0
_POLL_S = 0.1
_NAME_CHARS = 55
"""Of a name that is made unique; with its ending it stays below the 63 of a label."""


def submit_object(gateway: ClusterGateway, source: Source) -> RunAccepted:
    """Uploads, checks, creates the object, and waits until the operator has taken it in.

    Raises:
        FilesError: what is wrong with the workflow, at its place in the file.
        CliError: its budget cannot be met, or somebody refused; the message says who.
    """
    upload_inputs(gateway, source)
    _refuse_unmeetable(gateway, source)
    made, resumed = _create(gateway, _document(source))
    meta = made["metadata"]
    accepted = RunAccepted(meta["uid"], meta["name"], meta["namespace"], resumed=resumed)
    _wait(gateway, accepted, source)
    return accepted


def amend_object(gateway: ClusterGateway, uid: str, changes: Object) -> None:
    """Changes the spec of a run's object; the operator makes it the run's.

    Raises:
        CliError: the object is gone, or the API server refused.
    """
    run = gateway.get(f"/v1/runs/{uid}", _Named)
    gateway.objects.patch(run.namespace, run.name, uid, changes)


_json = msgspec.json.Decoder()


class _Named(msgspec.Struct, frozen=True):
    """What of a run's status names its object."""

    name: str
    namespace: str


class _Phase(msgspec.Struct, frozen=True):
    """What of a run's status says whether it has ended."""

    phase: str


def _refuse_unmeetable(gateway: ClusterGateway, source: Source) -> None:
    document = {"document": source.document.value, "uploads": source.uploads}
    try:
        refusals = gateway.ask("POST", "/v1/plan", Forecast, document=document).refusals
    except SpecError as e:
        raise FilesError(source.lines(e.problems)) from None
    if refusals:
        raise CliError("; ".join(refusals), ExitCode.REFUSED, where=source.title)


def _document(source: Source) -> Object:
    """The object: the file's document with references in place of what is local."""
    document: Object = decode(_json, msgspec.json.encode(source.document.value))
    inputs: dict[str, Any] = document["spec"].get("inputs", {})
    for name, kind, _ in tuple(local_inputs(inputs)):
        inputs[name][kind] = source.uploads[name]
    return document


def _create(gateway: ClusterGateway, document: Object) -> tuple[Object, bool]:
    """The object, and whether it was there: the same spec that has not ended goes on."""
    try:
        return gateway.objects.create(document), False
    except ExistsError:
        meta = document["metadata"]
    found = gateway.objects.read(meta["namespace"], meta["name"])
    if found["spec"] == document["spec"] and not _has_ended(gateway, found):
        return found, True
    name = f"{meta['name'][:_NAME_CHARS].rstrip('-.')}-{secrets.token_hex(3)}"
    return gateway.objects.create({**document, "metadata": {**meta, "name": name}}), False


def _has_ended(gateway: ClusterGateway, found: Object) -> bool:
    """Whether an object's run has: the fabric knows it a moment before the object's status."""
    phase = (found.get("status") or {}).get("phase", "")
    try:
        phase = gateway.get(f"/v1/runs/{found['metadata']['uid']}", _Phase).phase
    except CliError as e:
        if e.code != ExitCode.NOT_FOUND:
            raise
    return phase in ENDED


def _wait(gateway: ClusterGateway, run: RunAccepted, source: Source) -> None:
    end = time.monotonic() + _WITHIN_S
    while True:
        try:
            gateway.call("GET", f"/v1/runs/{run.uid}")
        except CliError as e:
            if e.code != ExitCode.NOT_FOUND:
                raise
        else:
            return
        held_up = _refused(gateway.objects.read(run.namespace, run.name), source)
        if time.monotonic() > end:
            raise CliError(
                held_up or "the operator has not looked at the object yet",
                ExitCode.NO_FABRIC,
                where=f"flowmeshworkflow {run.namespace}/{run.name}",
                remedy=f"`kubectl describe fmw {run.name} -n {run.namespace}` says more; "
                "it is taken in as soon as it can be",
            )
        time.sleep(_POLL_S)


def _refused(found: Object, source: Source) -> str:
    """Why it is not taken in yet; raises where it will not be as it stands."""
    status = found.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    accepted = conditions.get("Accepted", {})
    message = str(accepted.get("message", ""))
    if accepted.get("status") != "False":
        return ""
    if conditions.get("Failed", {}).get("status") == "True":
        raise CliError(
            message,
            ExitCode.USAGE,
            where=f"{source.file}: {source.title}",
            remedy="mend it, then submit it again; `kubectl delete fmw NAME` removes the object",
        )
    return message
