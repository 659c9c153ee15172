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
from flowmesh_api.v1.plan import Forecast
from flowmesh_api.v1.problems import Problem
from flowmesh_api.v1.runs import ResolvedSource, RunStatus
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.errors import CliError, FilesError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.verbs.delete import delete_run
from flowmesh_cli.verbs.follow import POLL_S
from flowmesh_cli.verbs.forecast import RUNS_NOTHING
from flowmesh_cli.verbs.run import submit
from flowmesh_cli.workflows.sources import Source
from flowmesh_core.catalog.hub_addresses import SCHEME, read_hub_address
from flowmesh_core.graph.external import RESOLVE, pin_path
from flowmesh_core.graph.plan import StepPlan
from flowmesh_documents.document import parse_documents


class Resolved(msgspec.Struct, frozen=True):
    """What the addresses of a workflow's inputs mean now.

    Attributes:
        pins: by input, as its run would make them.
        sizes: bytes by input, where the pin does not have them.
        unresolved: why some inputs could not be resolved, which stops no forecast.
    """

    pins: dict[str, ResolvedSource] = {}
    sizes: dict[str, int] = {}
    unresolved: tuple[str, ...] = ()

    def sized(self, forecast: Forecast) -> Forecast:
        """Returns a forecast whose imports have the sizes that the pins have not."""
        sizes = {f"inputs.{name}": size for name, size in self.sizes.items()}
        steps = tuple(
            msgspec.structs.replace(s, fetch_bytes=sizes[s.path])
            if s.path in sizes and s.expect not in RUNS_NOTHING
            else s
            for s in forecast.steps
        )
        return msgspec.structs.replace(forecast, steps=steps)


def resolve_sources(http: ApiClient, source: Source, *, is_local: bool) -> Resolved:
    """Returns what a run would resolve; nothing where it would resolve none.

    Models of a hub that the workers may not reach have the size that this machine's cache knows.

    Args:
        http: the fabric.
        source: the workflow.
        is_local: whether the workers are on this machine.

    Raises:
        FilesError: one cannot be resolved; each has its place in the file.
        CliError: the fabric cannot run the steps.
    """
    steps = {s.path: s for s in source.plan.steps if s.engine == RESOLVE} if source.plan else {}
    inputs = source.document.value["spec"].get("inputs") or {}
    found = {name: steps[pin_path(name)] for name in inputs if pin_path(name) in steps}
    try:
        return _split(_resolve(http, source, found), found)
    except FilesError as e:
        from flowmesh_worker.engines.imports.sources import (  # noqa: PLC0415 - seldom used
            OFFLINE,
            OFFLINE_REMEDY,
        )

        if not any(OFFLINE in line for line in e.lines):
            raise
        hub = {name: s for name, s in found.items() if _is_of_hub(s)}
        others = {name: s for name, s in found.items() if name not in hub}
        resolved = _split(_resolve(http, source, others), others)
        notes = tuple(
            f"inputs.{name}: a run would fail: {OFFLINE}; {OFFLINE_REMEDY}" for name in hub
        )
        cached = {name: _cached_bytes(s) for name, s in hub.items()} if is_local else {}
        sizes = {name: size for name, size in cached.items() if size}
        return Resolved(resolved.pins, {**resolved.sizes, **sizes}, notes)


def _is_of_hub(step: StepPlan) -> bool:
    return str(step.params["uri"]).startswith(SCHEME)


def _is_model(step: StepPlan) -> bool:
    return _is_of_hub(step) and step.params["kind"] != "dataset"


def _cached_bytes(step: StepPlan) -> int:
    from flowmesh_worker.engines.models.hub import cached_bytes  # noqa: PLC0415 - seldom used

    if not _is_model(step):
        return 0
    address = read_hub_address(str(step.params["uri"]), dataset=False)
    return cached_bytes(address.repository, address.revision)


def _split(pins: Mapping[str, ResolvedSource], found: Mapping[str, StepPlan]) -> Resolved:
    """Takes the sizes of models out of their pins: the pins of runs do not have them."""
    models = {name: pin for name, pin in pins.items() if _is_model(found[name])}
    plain = {n: msgspec.structs.replace(pin, size=msgspec.UNSET) for n, pin in models.items()}
    return Resolved({**pins, **plain}, {name: pin.size for name, pin in models.items() if pin.size})


def _resolve(
    http: ApiClient, source: Source, found: Mapping[str, StepPlan]
) -> dict[str, ResolvedSource]:
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
            "with": {**step.params, "sizes": True} if _is_model(step) else step.params,
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
