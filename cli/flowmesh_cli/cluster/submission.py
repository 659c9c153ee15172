"""Submits workflows to a cluster by creating objects with the user's rights.

Local inputs are uploaded to the gateway first and replaced by references, so that the object does
not depend on the machine that created it.
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
from flowmesh_cli.workflows.sources import Source
from flowmesh_cli.workflows.upload import upload_inputs
from flowmesh_core.decoding import decode
from flowmesh_core.errors import SpecError
from flowmesh_sdk.local_inputs import local_inputs

ENDED = ("Succeeded", "Failed", "Cancelled")
_TIMEOUT_S = 60.0
_POLL_S = 0.1
_NAME_CHARS = 55
"""Length of a name before the suffix that makes it unique; a label has at most 63 characters."""


def submit_object(gateway: ClusterGateway, source: Source) -> RunAccepted:
    """Uploads inputs, creates the object, and waits until the operator has started its run.

    Raises:
        FilesError: the workflow is invalid; each problem has its place in the file.
        CliError: its budget cannot be met, or the API server or the operator refused it.
    """
    upload_inputs(gateway, source)
    _refuse_unmeetable(gateway, source)
    created, resumed = _create(gateway, _document(source))
    meta = created["metadata"]
    accepted = RunAccepted(meta["uid"], meta["name"], meta["namespace"], resumed=resumed)
    _wait(gateway, accepted, source)
    return accepted


def amend_object(gateway: ClusterGateway, uid: str, changes: Object) -> None:
    """Changes the spec of a run's object; the operator then amends the run.

    Raises:
        CliError: the object does not exist, or the API server refused the change.
    """
    run = gateway.get(f"/v1/runs/{uid}", _Named)
    gateway.objects.patch(run.namespace, run.name, uid, changes)


_json = msgspec.json.Decoder()


class _Named(msgspec.Struct, frozen=True):
    """The part of a run's status that names its object."""

    name: str
    namespace: str


class _Phase(msgspec.Struct, frozen=True):
    """The part of a run's status that says whether it has ended."""

    phase: str


def _refuse_unmeetable(gateway: ClusterGateway, source: Source) -> None:
    document = {"document": source.document.value, "uploads": source.uploads}
    try:
        refusals = gateway.ask("POST", "/v1/plan", Forecast, document=document).refusals
    except SpecError as e:
        raise FilesError(source.refused_lines(e.problems)) from None
    if refusals:
        raise CliError("; ".join(refusals), ExitCode.REFUSED, where=source.title)


def _document(source: Source) -> Object:
    """Returns the object: the file's document with references in place of local inputs."""
    document: Object = decode(_json, msgspec.json.encode(source.document.value))
    inputs: dict[str, Any] = document["spec"].get("inputs", {})
    for name, kind, _ in tuple(local_inputs(inputs)):
        inputs[name][kind] = source.uploads[name]
    return document


def _create(gateway: ClusterGateway, document: Object) -> tuple[Object, bool]:
    """Returns the object, and whether it existed: an unfinished one of the same spec is resumed."""
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
    """Returns whether an object's run has ended; the fabric knows it before the object's status."""
    phase = (found.get("status") or {}).get("phase", "")
    try:
        phase = gateway.get(f"/v1/runs/{found['metadata']['uid']}", _Phase).phase
    except CliError as e:
        if e.code != ExitCode.NOT_FOUND:
            raise
    return phase in ENDED


def _wait(gateway: ClusterGateway, run: RunAccepted, source: Source) -> None:
    end = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            gateway.call("GET", f"/v1/runs/{run.uid}")
        except CliError as e:
            if e.code != ExitCode.NOT_FOUND:
                raise
        else:
            return
        pending_reason = _refused(gateway.objects.read(run.namespace, run.name), source)
        if time.monotonic() > end:
            raise CliError(
                pending_reason or "the operator has not accepted the object yet",
                ExitCode.NO_FABRIC,
                where=f"flowmeshworkflow {run.namespace}/{run.name}",
                remedy=f"`kubectl describe fmw {run.name} -n {run.namespace}` shows why; "
                "the operator accepts it as soon as it can",
            )
        time.sleep(_POLL_S)


def _refused(found: Object, source: Source) -> str:
    """Returns why the object is not accepted yet; raises where it is refused."""
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
            remedy="correct it and submit it again; `kubectl delete fmw NAME` removes the object",
        )
    return message
