"""Resolves what a run of a workflow would resolve, for ``fmesh plan --resolve``.

A worker asks the hub or the bucket, as in a run: by a small run of ``source.resolve`` alone, which
is deleted once it has ended.
"""

import secrets
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from flowmesh_api.v1.enums import ENDED_PHASES, Phase
from flowmesh_api.v1.problems import Problem
from flowmesh_api.v1.runs import ResolvedSource, RunStatus
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.errors import CliError, FilesError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.verbs.delete import delete_run
from flowmesh_cli.verbs.follow import POLL_S
from flowmesh_cli.verbs.run import submit
from flowmesh_cli.workflows.sources import Source
from flowmesh_core.graph.external import RESOLVE, pin_path
from flowmesh_core.graph.plan import StepPlan
from flowmesh_documents.document import parse_documents


def resolve_sources(http: ApiClient, source: Source) -> dict[str, ResolvedSource]:
    """Returns by input what its address means now; nothing where a run would resolve none.

    Raises:
        FilesError: one cannot be resolved; each has its place in the file.
        CliError: the fabric cannot run the steps.
    """
    steps = {s.path: s for s in source.plan.steps if s.engine == RESOLVE} if source.plan else {}
    inputs = source.document.value["spec"].get("inputs") or {}
    found = {name: steps[pin_path(name)] for name in inputs if pin_path(name) in steps}
    if not found:
        return {}
    ((document,), _) = parse_documents(msgspec.json.encode(_document(source, found)).decode())
    accepted = submit(http, Source(source.file, source.folder, document))
    try:
        status = _wait(http, accepted.uid)
        has_succeeded = status.phase == Phase.SUCCEEDED
        pins = {
            name: http.get(f"/v1/runs/{status.uid}/outputs/{_name(i)}", ResolvedSource)
            for i, name in enumerate(found if has_succeeded else ())
        }
    except KeyboardInterrupt:
        http.call("POST", f"/v1/runs/{accepted.uid}/cancel")
        raise
    delete_run(http, status)
    if not has_succeeded:
        raise _error(source, status, list(found))
    return pins


def _document(source: Source, found: Mapping[str, StepPlan]) -> dict[str, Any]:
    document = source.document.value
    inputs = document["spec"]["inputs"]
    steps = [
        {
            "name": _name(i),
            "uses": RESOLVE,
            "with": step.params,
            "secrets": inputs[name].get("secrets") or [],
        }
        for i, (name, step) in enumerate(found.items())
    ]
    spec = {"steps": steps, "outputs": {s["name"]: f"{s['name']}.pin" for s in steps}}
    if places := document["spec"].get("secrets"):
        spec["secrets"] = places
    namespace = document["metadata"].get("namespace")
    # A name of its own: an equal document would join the run of another plan, which deletes it.
    metadata = {"name": f"resolve-{secrets.token_hex(4)}"}
    if namespace:
        metadata["namespace"] = namespace
    return {
        "apiVersion": document["apiVersion"],
        "kind": document["kind"],
        "metadata": metadata,
        "spec": spec,
    }


def _name(number: int) -> str:
    """Returns the name of a step: names of inputs may be longer than those of steps."""
    return f"source-{number}"


def _wait(http: ApiClient, uid: str) -> RunStatus:
    while True:
        status = http.get(f"/v1/runs/{uid}", RunStatus)
        if status.phase in ENDED_PHASES:
            return status
        time.sleep(POLL_S)


def _error(source: Source, status: RunStatus, names: list[str]) -> CliError:
    """Returns the error of a source that cannot be resolved, with its place in the file."""
    if not status.failed_step:
        return CliError(status.message, ExitCode.FAILED, where=status.uid, remedy=status.remedy)
    name = names[int(status.failed_step.rpartition("-")[2])]
    remedy = f"; {status.remedy}" if status.remedy else ""
    return FilesError(source.lines([Problem(f"spec.inputs.{name}", status.message + remedy)]))
