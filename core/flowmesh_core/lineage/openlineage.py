"""Exports a run as OpenLineage events, for catalogues of a whole company's lineage.

Specification 2-0-2 (https://openlineage.io/spec/2-0-2/OpenLineage.json). A workflow's run is a job
with a run; each of its steps is another job whose parent it is. Content is named by its digest, so
that the output of one run and the input of another are one data set; the user's name is a symlink.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from flowmesh_api.v1.enums import Phase, StepState
from flowmesh_api.v1.runs import RunStatus, StepStatus
from flowmesh_core.accounting.ledger_lines import Line, StepLine
from flowmesh_core.graph.plan import ArtifactSource, Plan, Source, StepPlan, StepSource
from flowmesh_core.lineage.derivation import sources_of
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.sharing import REFERENCE_PREFIX

PRODUCER = "https://flowmesh.dev/openlineage"
_EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = "https://openlineage.io/spec/facets"
_LAST_S = datetime.max.replace(tzinfo=UTC).timestamp()
_END = {
    StepState.COMPLETED: "COMPLETE",
    StepState.FAILED: "FAIL",
    StepState.CANCELLED: "ABORT",
    Phase.SUCCEEDED: "COMPLETE",
    Phase.FAILED: "FAIL",
    Phase.CANCELLED: "ABORT",
}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExportInput:
    """What an export needs of a run.

    Attributes:
        version: of FlowMesh.
        artifacts: content by reference, for inputs that no step made.
    """

    status: RunStatus
    plan: Plan
    artifacts: Mapping[str, Artifact]
    lines: Iterable[Line]
    version: str


def run_events(run: ExportInput) -> list[Json]:
    """Returns all events of a run by time: START and an end, of it and of each step that began.

    Returns:
        JSON-like documents, one ``RunEvent`` each. A step or run that has not ended has no end.
    """
    ends = {la.step: la for la in run.lines if isinstance(la, StepLine)}
    start, *end = _workflow_events(run)
    found = [start]
    plans = {s.path: s for s in run.plan.steps}
    for step in run.status.steps:
        found += _step_events(run, step, plans[step.path], ends)
    return sorted([*found, *end], key=lambda e: str(e["eventTime"]))


def _workflow_events(run: ExportInput) -> list[Json]:
    status = run.status
    end = _END.get(Phase(status.phase))
    facets: Json = {
        "nominalTime": _facet(
            "1-0-1/NominalTimeRunFacet",
            nominalStartTime=_time(status.created_s),
            nominalEndTime=_deadline(status),
        ),
        "processing_engine": _processing_engine(run),
    }
    job = {
        "namespace": _job_namespace(status),
        "name": status.name,
        "facets": {"jobType": _job_type("WORKFLOW")},
    }
    this = {"runId": _run_id(status.uid), "facets": facets}
    events = [_event("START", status.created_s, this, job)]
    if end and status.ended_s:
        failed = _error(status.message) if end == "FAIL" else {}
        ended = {**this, "facets": {**facets, **failed}}
        events.append(_event(end, status.ended_s, ended, job))
    return events


def _step_events(
    run: ExportInput, step: StepStatus, plan: StepPlan, ends: Mapping[str, StepLine]
) -> list[Json]:
    line, end = ends.get(step.path), _END.get(StepState(step.state))
    began_s = step.started_s or (step.ended_s if end == "COMPLETE" else 0.0)
    if not began_s:
        return []
    status = run.status
    facets = {
        "parent": _facet(
            "1-2-0/ParentRunFacet",
            run={"runId": _run_id(status.uid)},
            job={"namespace": _job_namespace(status), "name": status.name},
        ),
        "processing_engine": _processing_engine(run),
        "executionParameters": _parameters(plan),
        "flowmesh_step": _own_facet(
            "StepRunFacet",
            engine=plan.engine,
            contract=plan.contract,
            implementation=plan.implementation,
            fields=plan.fields,
            matrix=plan.matrix,
            actions=step.actions,
            executed=step.executed,
            hits=step.hits,
        ),
    }
    job = {
        "namespace": _job_namespace(status),
        "name": f"{status.name}.{step.path}",
        "facets": {"jobType": _job_type("STEP"), **_source(plan)},
    }
    inputs = _inputs(run, plan, ends)
    this = {"runId": _run_id(status.uid, step.path), "facets": facets}
    events = [_event("START", began_s, this, job, inputs)]
    if end and step.ended_s:
        failed = _error(step.message) if end == "FAIL" else {}
        outputs = _outputs(run, plan, line) if line is not None and end == "COMPLETE" else []
        ended = {**this, "facets": {**facets, **failed}}
        events.append(_event(end, step.ended_s, ended, job, inputs, outputs))
    return events


def _event(
    kind: str,
    time_s: float,
    run: Json,
    job: Json,
    inputs: list[Json] | None = None,
    outputs: list[Json] | None = None,
) -> Json:
    return {
        "eventType": kind,
        "eventTime": _time(time_s),
        "producer": PRODUCER,
        "schemaURL": _EVENT,
        "run": run,
        "job": job,
        "inputs": inputs or [],
        "outputs": outputs or [],
    }


def _inputs(run: ExportInput, plan: StepPlan, ends: Mapping[str, StepLine]) -> list[Json]:
    found: dict[str, Json] = {}
    for edge in plan.edges:
        for source, artifact in sources_of(edge, ends, run.artifacts):
            found[artifact.digest] = _dataset(run, artifact, _name(run, source)) | {
                "inputFacets": {
                    "inputStatistics": _facet(
                        "1-0-0/InputStatisticsInputDatasetFacet", **_sizes(artifact)
                    )
                }
            }
    return [*found.values(), *_external_inputs(plan)]


def _name(run: ExportInput, source: Source) -> str:
    if isinstance(source, StepSource):
        return f"{run.status.name}/{source.step}.{source.port}"
    return _uploaded(source)


def _uploaded(source: ArtifactSource) -> str:
    named = source.reference.partition(".")[0]
    if named.startswith(REFERENCE_PREFIX):  # the kind in it, if any, is not part of the name
        return f"upload/{named.rpartition(':')[2]}"
    return f"upload/{named.partition(':')[2]}"


def _external_inputs(plan: StepPlan) -> list[Json]:
    """What an import reads from outside the store, named by its address."""
    uri = str(plan.params.get("uri") or "")
    scheme, sign, rest = uri.partition("://")
    if not sign:
        return []
    authority, _, path = rest.partition("/")
    return [{"namespace": f"{scheme}://{authority}", "name": path or authority, "facets": {}}]


def _outputs(run: ExportInput, plan: StepPlan, line: StepLine) -> list[Json]:
    found: dict[str, Json] = {}
    for port, artifact in line.outputs.items():
        if artifact is not None:
            name = f"{run.status.name}/{plan.path}.{port}"
            found[artifact.digest] = _dataset(run, artifact, name) | {
                "outputFacets": {
                    "outputStatistics": _facet(
                        "1-0-2/OutputStatisticsOutputDatasetFacet", **_sizes(artifact)
                    )
                }
            }
    return list(found.values())


def _dataset(run: ExportInput, artifact: Artifact, name: str) -> Json:
    namespace = _job_namespace(run.status)
    facets: Json = {
        "version": _facet("1-0-1/DatasetVersionDatasetFacet", datasetVersion=artifact.digest),
        "datasetType": _facet(
            "1-0-1/DatasetTypeDatasetFacet", datasetType=artifact.kind.upper(), subType=""
        ),
        "symlinks": _facet(
            "1-0-1/SymlinksDatasetFacet",
            identifiers=[{"namespace": namespace, "name": name, "type": artifact.kind}],
        ),
    }
    if artifact.manifest is not None:
        columns = artifact.manifest.schema.columns
        facets["schema"] = _facet(
            "1-2-0/SchemaDatasetFacet",
            fields=[{"name": c.name, "type": c.type.value} for c in columns],
        )
    return {"namespace": "flowmesh://cas", "name": artifact.digest, "facets": facets}


def _sizes(artifact: Artifact) -> Json:
    sizes: Json = {"size": artifact.size_bytes}
    return {"rowCount": artifact.rows, **sizes} if artifact.kind == "dataset" else sizes


def _source(plan: StepPlan) -> Json:
    """The code of steps that are written as code."""
    query, code = plan.params.get("query"), plan.params.get("code")
    if plan.engine == "data.sql" and isinstance(query, str):
        return {"sql": _facet("1-1-0/SQLJobFacet", query=query, dialect="duckdb")}
    if plan.engine == "code.python" and isinstance(code, str):
        return {
            "sourceCode": _facet("1-0-1/SourceCodeJobFacet", language="python", sourceCode=code)
        }
    return {}


def _parameters(plan: StepPlan) -> Json:
    values = {**plan.params, **plan.fields}
    found = [{"key": k, "value": v if isinstance(v, str) else repr(v)} for k, v in values.items()]
    return _facet("1-0-0/ExecutionParametersRunFacet", parameters=found)


def _job_type(kind: str) -> Json:
    return _facet(
        "2-0-4/JobTypeJobFacet", processingType="BATCH", integration="FLOWMESH", jobType=kind
    )


def _processing_engine(run: ExportInput) -> Json:
    return _facet(
        "1-1-1/ProcessingEngineRunFacet",
        name="FlowMesh",
        version=run.version,
        openlineageAdapterVersion=run.version,
    )


def _error(message: str) -> Json:
    facet = _facet("1-0-1/ErrorMessageRunFacet", message=message, programmingLanguage="PYTHON")
    return {"errorMessage": facet}


def _facet(schema: str, **fields: Any) -> Json:
    """A standard facet; fields that are None are left out."""
    name = schema.partition("/")[2]
    given = {k: v for k, v in fields.items() if v is not None}
    return {
        "_producer": PRODUCER,
        "_schemaURL": f"{_FACETS}/{schema}.json#/$defs/{name}",
        **given,
    }


def _own_facet(name: str, **fields: Any) -> Json:
    return {"_producer": PRODUCER, "_schemaURL": f"{PRODUCER}/{name}.json", **fields}


def _job_namespace(status: RunStatus) -> str:
    return f"flowmesh://{status.namespace}"


def _run_id(uid: str, step: str = "") -> str:
    """The same UUID for the same run or step, whenever it is exported."""
    return str(uuid5(NAMESPACE_URL, f"{PRODUCER}/{uid}/{step}"))


def _deadline(status: RunStatus) -> str | None:
    due_s = status.created_s + status.deadline_s
    return _time(due_s) if status.deadline_s and due_s < _LAST_S else None


def _time(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="microseconds")
