"""Runs that are FlowMeshWorkflow objects of a cluster: created or continued, then waited for.

The client and ``fmesh`` use it, each with its own access to the API server.
"""

import os
import time
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from flowmesh_api.decoding import decode
from flowmesh_api.v1 import routes
from flowmesh_api.v1.enums import ENDED_PHASES
from flowmesh_api.v1.plan import Forecast
from flowmesh_api.v1.runs import RunAccepted
from flowmesh_sdk.errors import ApiError, FabricUnavailableError
from flowmesh_sdk.http.client import ApiConnection
from flowmesh_sdk.local_inputs import local_inputs

Object = dict[str, Any]
GROUP, VERSION, PLURAL = "flowmesh.dev", "v1alpha1", "flowmeshworkflows"
ACCEPTED_WITHIN_S = 60.0
_POLL_S = 0.1
_NAME_CHARS = 55
"""Length of a name before the suffix that makes it unique; a label has at most 63 characters."""
_UNMEETABLE, _INVALID = 402, 422


class ObjectAccess(Protocol):
    """Creates and reads workflow objects of a cluster with the user's rights."""

    def create(self, document: Object) -> Object | None:
        """Creates an object; returns None where one of its name exists."""
        ...

    def read(self, namespace: str, name: str) -> Object:
        """Returns an object with its status."""
        ...


def submit_object(
    http: ApiConnection,
    objects: ObjectAccess,
    document: Mapping[str, Any],
    uploads: Mapping[str, str],
    *,
    resume: bool = True,
) -> RunAccepted:
    """Creates the object of a workflow, and returns its run once the operator has started it.

    Args:
        http: the cluster's control plane.
        objects: of that cluster.
        document: the workflow.
        uploads: references of its uploaded local inputs, by the input's name.
        resume: whether an unfinished object of this name with the same spec is continued.

    Raises:
        ApiError: with status 402, its budget or deadline cannot be met; with 422, the operator
            refused it.
        FabricUnavailableError: it was not accepted within a minute.
        Exception: what ``http`` and ``objects`` raise where they are refused.
    """
    _refuse_unmeetable(http, document, uploads)
    self_contained = _with_references(document, uploads)
    created, resumed = objects.create(self_contained), False
    if created is None:
        created, resumed = _of_that_name(http, objects, self_contained, resume=resume)
    meta = created["metadata"]
    run = RunAccepted(meta["uid"], meta["name"], meta["namespace"], resumed=resumed)
    _wait(http, objects, run)
    return run


class _Phase(msgspec.Struct, frozen=True):
    """The part of a run's status that says whether it has ended."""

    phase: str


_json = msgspec.json.Decoder()


def _refuse_unmeetable(
    http: ApiConnection, document: Mapping[str, Any], uploads: Mapping[str, str]
) -> None:
    body = {"document": document, "uploads": uploads}
    refusals = http.ask("POST", routes.PLAN, Forecast, document=body).refusals
    if refusals:
        name = document["metadata"]["name"]
        raise ApiError("; ".join(refusals), status=_UNMEETABLE, where=name)


def _with_references(document: Mapping[str, Any], uploads: Mapping[str, str]) -> Object:
    """Returns the document with references in place of local inputs.

    The object must not depend on the machine that created it.
    """
    found: Object = decode(_json, msgspec.json.encode(document))
    inputs: dict[str, Any] = found["spec"].get("inputs", {})
    for name, kind, _ in tuple(local_inputs(found["spec"])):
        inputs[name][kind] = uploads[name]
    return found


def _of_that_name(
    http: ApiConnection, objects: ObjectAccess, document: Object, *, resume: bool
) -> tuple[Object, bool]:
    """Returns the object that has the name, if it is this workflow's and live, or a new one."""
    meta = document["metadata"]
    found = objects.read(meta["namespace"], meta["name"])
    if resume and found["spec"] == document["spec"] and not _has_ended(http, found):
        return found, True
    created = None
    while created is None:
        name = f"{meta['name'][:_NAME_CHARS].rstrip('-.')}-{os.urandom(3).hex()}"
        created = objects.create({**document, "metadata": {**meta, "name": name}})
    return created, False


def _has_ended(http: ApiConnection, found: Object) -> bool:
    """Whether an object's run has ended; the fabric knows it before the object's status."""
    known = http.find(f"{routes.RUNS}/{found['metadata']['uid']}", _Phase)
    phase = known.phase if known else (found.get("status") or {}).get("phase", "")
    return phase in ENDED_PHASES


def _wait(http: ApiConnection, objects: ObjectAccess, run: RunAccepted) -> None:
    """Waits until the operator has started the run of an object."""
    end = time.monotonic() + ACCEPTED_WITHIN_S
    while http.find(f"{routes.RUNS}/{run.uid}", _Phase) is None:
        reason = _pending_reason(objects.read(run.namespace, run.name))
        if time.monotonic() > end:
            raise FabricUnavailableError(
                reason or "the operator has not accepted the object yet",
                where=f"flowmeshworkflow {run.namespace}/{run.name}",
                remedy=f"`kubectl describe fmw {run.name} -n {run.namespace}` shows why; "
                "the operator accepts it as soon as it can",
            )
        time.sleep(_POLL_S)


def _pending_reason(found: Object) -> str:
    """Returns why an object is not accepted yet; raises where it is refused for good."""
    conditions = {c["type"]: c for c in (found.get("status") or {}).get("conditions") or ()}
    accepted: Mapping[str, Any] = conditions.get("Accepted", {})
    message = str(accepted.get("message", ""))
    if accepted.get("status") != "False":
        return ""
    if conditions.get("Failed", {}).get("status") == "True":
        raise ApiError(
            message,
            status=_INVALID,
            where=found["metadata"]["name"],
            remedy="correct it and submit it again; `kubectl delete fmw NAME` removes the object",
        )
    return message
