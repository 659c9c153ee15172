"""The table of the control API: every route, with its parameters and the types of its answers.

The control plane registers its handlers by these constants, and ``openapi`` describes them. The
name of a constant in camel case is its operation id: ``SUBMIT_RUN`` is ``submitRun``.
"""

from dataclasses import replace
from typing import Any, Literal

from flowmesh_api.v1 import routes
from flowmesh_api.v1.audit import AuditAccepted, AuditBody, AuditReport, QuarantineEntry
from flowmesh_api.v1.charges import ChargePage
from flowmesh_api.v1.engines import OfferedEngine
from flowmesh_api.v1.fabric import (
    CachePolicy,
    CacheStats,
    CollectionReport,
    DrainAccepted,
    FabricStatus,
    Health,
    PurgeBody,
    PurgeReport,
    WorkerStatus,
)
from flowmesh_api.v1.keys import MasterKeys, ResealReport, RetireBody, RetireReport
from flowmesh_api.v1.lineage import Direction, LineageWalk, ProducedArtifact, RowOrigins
from flowmesh_api.v1.operation import (
    ARROW_STREAM,
    BYTES,
    JSON,
    JSON_LINES,
    TAR,
    TEXT,
    Operation,
    OperationGroup,
    QueryParameter,
    Tag,
)
from flowmesh_api.v1.plan import Forecast
from flowmesh_api.v1.quotas import QuotaUsage
from flowmesh_api.v1.receipts import Receipt, ReceiptPage
from flowmesh_api.v1.request_log import RequestLogCheck, RequestLogPage
from flowmesh_api.v1.revocation import RevocationAnswer, RevokeBody
from flowmesh_api.v1.runs import (
    AmendBody,
    CancelBody,
    DeletedRun,
    Outputs,
    RepinnedRun,
    RunAccepted,
    RunStatus,
    RunSummary,
    StepLogLine,
    SubmitBody,
    Uploaded,
)
from flowmesh_api.v1.services import (
    ServiceApplication,
    ServiceCapacity,
    ServiceDeleted,
    ServiceList,
    ServiceReasons,
    ServiceStatus,
    ServiceTokenCreated,
    ServiceTokenList,
    ServiceTokenRequest,
    ServiceTokenRevoked,
)
from flowmesh_api.v1.trace import RecordedRun
from flowmesh_api.v1.verification import VerificationReport
from flowmesh_api.v1.why import Explanation, Why
from flowmesh_api.v1.withheld import (
    ReleaseBody,
    ReleaseReport,
    WithheldPage,
    WithholdBody,
    WithholdReport,
)

NAMESPACE = QueryParameter("namespace", "The namespace; `default` where it is left out.")
_ONLY_NAMESPACE = QueryParameter("namespace", "Only this namespace.")
_ALL_NAMESPACES = QueryParameter("all_namespaces", "In all namespaces, for administrators.", bool)
_DRY_RUN = QueryParameter("dry_run", "Show what would be done, and do nothing.", bool)
_STEP = QueryParameter("step", "The step's path in the workflow.")
_AFTER = QueryParameter("after", "`next` of the page before; without it the first page.")
_MADE_AS = QueryParameter("name", "An output, or STEP.PORT.", required=True)
_DEPTH = QueryParameter("depth", "The number of derivations to follow, from 1.", int)

_runs = OperationGroup(Tag.RUNS)
SUBMIT_RUN = replace(
    _runs.post(
        routes.RUNS,
        "Submit a workflow; an unfinished run of an equal document is resumed (200).",
        RunAccepted,
        QueryParameter("check", "Refuse what cannot meet its budget or deadline.", bool),
        body=SubmitBody,
    ),
    statuses=(201, 200),
)
PLAN_RUN = _runs.post(
    routes.PLAN, "Predict the time and cost of a workflow.", Forecast, body=SubmitBody
)
LIST_RUNS = _runs.get(
    routes.RUNS, "List the runs that the user may see, oldest first.", list[RunSummary],
    _ONLY_NAMESPACE,
)  # fmt: skip
GET_RUN = _runs.get(routes.RUN, "Show a run with its steps.", RunStatus)
DELETE_RUN = _runs.delete(
    routes.RUN, "Delete a run that has ended, with its records; what it paid stays in bills.",
    DeletedRun,
)  # fmt: skip
WATCH_RUN = replace(
    _runs.get(routes.RUN_WATCH, "Stream the status of a run, one a line, to its end.", RunStatus),
    media=(JSON_LINES,),
)
CANCEL_RUN = replace(
    _runs.post(
        routes.RUN_CANCEL, "Cancel a run, for all or for one submission.", RunStatus,
        body=CancelBody,
    ),
    body_required=False,
)  # fmt: skip
AMEND_RUN = _runs.post(
    routes.RUN_AMEND, "Change a run's budget, deadline, priority or suspension.", RunStatus,
    body=AmendBody,
)  # fmt: skip
REPIN_RUN = _runs.post(
    routes.RUN_REPIN, "Continue a run with the newest versions of its engines.", RepinnedRun
)
RESUME_RUN = _runs.post(
    routes.RUN_RESUME, "Continue a run that stopped the control plane; by its full uid.", RunStatus
)
LIST_LOGS = _runs.get(
    routes.RUN_LOGS, "List what the steps of a run printed.", list[StepLogLine], _STEP
)
GET_WHY = _runs.get(
    routes.RUN_WHY, "Show why a step is in its state.", Why, replace(_STEP, required=True)
)
EXPLAIN_STEP = _runs.get(
    routes.RUN_EXPLAIN, "Show how the actions of a step are placed.", Explanation,
    replace(_STEP, required=True),
)  # fmt: skip
GET_RECEIPT = _runs.get(routes.RUN_RECEIPT, "Show what a run paid and saved.", Receipt)
LIST_RECEIPTS = _runs.get(
    routes.RECEIPTS, "List the receipts of all runs that the user may see, by pages.", ReceiptPage,
    _ONLY_NAMESPACE, _AFTER,
)  # fmt: skip
LIST_CHARGES = _runs.get(
    routes.CHARGES,
    "List what the runs that the user may see paid, by step and day in UTC, by pages.",
    ChargePage,
    _ONLY_NAMESPACE,
    QueryParameter("run", "Only the run of this uid."),
    QueryParameter("since", "From this day on, such as 2026-01-31, in UTC."),
    QueryParameter("until", "Before this day."),
    _AFTER,
)
GET_TRACE = _runs.get(
    routes.RUN_TRACE, "Export the times, costs and places of a run's actions.", RecordedRun
)

_content = OperationGroup(Tag.CONTENT)
_ANY_CONTENT = (JSON_LINES, ARROW_STREAM, TAR, JSON, BYTES)
_HEAD = QueryParameter("head", "Of a data set only so many rows, from the first on; from 1.", int)
LIST_OUTPUTS = _content.get(routes.RUN_OUTPUTS, "List the outputs of a run by name.", Outputs)
GET_OUTPUT = replace(
    _content.get(
        routes.RUN_OUTPUT,
        "Download an output: rows as JSON Lines or, where `Accept` names it, as an Arrow stream; "
        "a folder as tar, metrics as JSON, or bytes.",
        bytes,
        _HEAD,
        QueryParameter("partial", "What is published so far, also of an unfinished run.", bool),
    ),
    media=_ANY_CONTENT,
)
GET_CONTENT = replace(
    _content.get(
        routes.CONTENT,
        "Download the content of a reference, in the form of an output.",
        bytes,
        _HEAD,
        QueryParameter("reference", "The reference.", required=True),
        QueryParameter("kind", "The kind that is expected; another one is refused."),
        NAMESPACE,
    ),
    media=_ANY_CONTENT,
)
UPLOAD_DATASET = replace(
    _content.post(
        routes.DATASETS,
        "Upload a file of rows.",
        Uploaded,
        NAMESPACE,
        QueryParameter("name", "The file's name, whose suffix gives the format; JSON Lines."),
        body=bytes,
    ),
    body_media=BYTES,
    statuses=(201,),
)
UPLOAD_TREE = replace(
    _content.post(
        routes.TREES,
        "Upload a folder as tar: a model or an adapter.",
        Uploaded,
        NAMESPACE,
        QueryParameter("kind", "What it is; `model` by default.", Literal["model", "adapter"]),
        body=bytes,
    ),
    body_media=TAR,
    statuses=(201,),
)

_lineage = OperationGroup(Tag.LINEAGE)
GET_LINEAGE = _lineage.get(
    routes.LINEAGE,
    "Follow an artifact to what it was made from, or to what was made of it.",
    LineageWalk,
    QueryParameter("direction", "`up` to what it was made from, which is the default.", Direction),
    _DEPTH,
    QueryParameter("namespace", "A namespace without runs for which the reference is valid."),
)
GET_ROW_ORIGINS = _lineage.get(
    routes.LINEAGE_ROWS, "Show the rows that the rows of a data set came from.", RowOrigins,
    QueryParameter("namespace", "A namespace without runs for which the reference is valid."),
)  # fmt: skip
GET_RUN_LINEAGE = _lineage.get(
    routes.RUN_LINEAGE, "Show what a run made an artifact from.", LineageWalk, _MADE_AS, _DEPTH
)
GET_RUN_ROW_ORIGINS = _lineage.get(
    routes.RUN_LINEAGE_ROWS, "Show the rows that rows of a run came from.", RowOrigins, _MADE_AS,
    _DEPTH,
)  # fmt: skip
LIST_PRODUCED = _lineage.get(
    routes.RUN_MADE, "List the artifacts that the steps of a run made.", list[ProducedArtifact]
)
EXPORT_OPENLINEAGE = replace(
    _lineage.get(
        routes.RUN_OPENLINEAGE, "Export a run as OpenLineage events, one a line.", dict[str, Any]
    ),
    media=(JSON_LINES,),
)

_audits = OperationGroup(Tag.AUDITS)
VERIFY_RUN = _audits.get(
    routes.RUN_VERIFY, "Read outputs, and what they rest on, again.", VerificationReport,
    QueryParameter("output", "Only this output."),
)  # fmt: skip
AUDIT_RUN = replace(
    _audits.post(
        routes.RUN_AUDIT, "Execute a share of a run's actions again and compare.", AuditAccepted,
        body=AuditBody,
    ),
    statuses=(201, 200),
)  # fmt: skip
LIST_AUDITS = _audits.get(routes.AUDITS, "List audits, oldest first.", list[AuditReport])
GET_AUDIT = _audits.get(routes.AUDIT, "Show an audit.", AuditReport)
LIST_QUARANTINE = _audits.get(
    routes.QUARANTINE, "List what did not repeat, latest first.", list[QuarantineEntry]
)
RELEASE_QUARANTINE = _audits.delete(
    routes.QUARANTINE_ENTRY, "Take a class of actions out of quarantine.", QuarantineEntry
)
LIST_WITHHELD = _audits.get(
    routes.WITHHELD, "Count withheld results, and show the first.", WithheldPage
)
WITHHOLD_RESULTS = _audits.post(
    routes.WITHHELD, "Keep results from being found by look-ups.", WithholdReport, body=WithholdBody
)
RELEASE_WITHHELD = _audits.post(
    routes.WITHHELD_RELEASE, "Let withheld results be found again.", ReleaseReport, body=ReleaseBody
)
REVOKE_CONTENT = _audits.post(
    routes.REVOKE,
    "Delete an artifact with all that was made from it.",
    RevocationAnswer,
    NAMESPACE,
    _ALL_NAMESPACES,
    _DRY_RUN,
    body=RevokeBody,
)

_fabric = OperationGroup(Tag.FABRIC)
LIST_WORKERS = _fabric.get(routes.WORKERS, "List the workers.", list[WorkerStatus])
DRAIN_WORKER = _fabric.post(
    routes.WORKER_DRAIN, "Let a worker end its work and take none.", DrainAccepted
)
LIST_ENGINES = _fabric.get(
    routes.ENGINES, "List the contracts of engines, with the workers that offer them.",
    list[OfferedEngine],
)  # fmt: skip
GET_FABRIC = _fabric.get(routes.FABRIC, "Show the fabric with its account.", FabricStatus)
LIST_POLICIES = _fabric.get(routes.POLICIES, "List the cache policies.", list[CachePolicy])
SET_POLICIES = _fabric.put(
    routes.POLICIES,
    "Set cache policies: all of them or none.",
    list[CachePolicy],
    QueryParameter("only", "Remove all others.", bool),
    body=list[CachePolicy],
)
GET_QUOTA = _fabric.get(
    routes.QUOTA, "Show a namespace's quota and what is used of it.", QuotaUsage, NAMESPACE
)
GET_CACHE_STATS = _fabric.get(routes.CACHE_STATS, "Count what the store has.", CacheStats)
COLLECT_CACHE = _fabric.post(
    routes.CACHE_GC, "Delete what nothing uses.", CollectionReport, _DRY_RUN
)
PURGE_CACHE = _fabric.post(
    routes.CACHE_PURGE, "Delete results of a scope.", PurgeReport, body=PurgeBody
)

_services = OperationGroup(Tag.SERVICES)
APPLY_SERVICE = _services.post(
    routes.SERVICES, "Create a service, or give it another content.", ServiceStatus,
    body=ServiceApplication,
)  # fmt: skip
LIST_SERVICES = _services.get(
    routes.SERVICES,
    "List services of a namespace, or of all.",
    ServiceList,
    NAMESPACE,
    _ALL_NAMESPACES,
)
GET_SERVICE = _services.get(routes.SERVICE, "Show a service.", ServiceStatus, NAMESPACE)
GET_SERVICE_WHY = _services.get(
    routes.SERVICE_WHY, "Show why a service has its replicas.", ServiceReasons, NAMESPACE
)
GET_SERVICE_CAPACITY = _services.get(
    routes.SERVICE_CAPACITY, "Predict a service's latency by load.", ServiceCapacity, NAMESPACE
)
DELETE_SERVICE = _services.delete(routes.SERVICE, "Delete a service.", ServiceDeleted, NAMESPACE)
CREATE_SERVICE_TOKEN = _services.post(
    routes.SERVICE_TOKENS, "Create a token that may call a service.", ServiceTokenCreated,
    NAMESPACE, body=ServiceTokenRequest,
)  # fmt: skip
LIST_SERVICE_TOKENS = _services.get(
    routes.SERVICE_TOKENS, "List the tokens of a service.", ServiceTokenList, NAMESPACE
)
REVOKE_SERVICE_TOKEN = _services.delete(
    routes.SERVICE_TOKEN, "Revoke a token of a service.", ServiceTokenRevoked, NAMESPACE
)

_keys = OperationGroup(Tag.KEYS)
LIST_KEYS = _keys.get(routes.KEYS, "Show the ids of the master keys.", MasterKeys)
RESEAL_RECORDS = _keys.post(
    routes.KEYS_RESEAL, "Seal all records with the newest key.", ResealReport
)
RETIRE_KEY = _keys.post(routes.KEYS_RETIRE, "Take a key out of use.", RetireReport, body=RetireBody)
LIST_REQUESTS = _keys.get(
    routes.REQUEST_LOG,
    "List entries of the request log, oldest first.",
    RequestLogPage,
    QueryParameter("since", "Not before this time, as in the entries."),
    QueryParameter("user", "Only of this user."),
    _ONLY_NAMESPACE,
    _AFTER,
)
CHECK_REQUEST_LOG = _keys.get(
    routes.REQUEST_LOG_CHECK, "Check that the request log is whole.", RequestLogCheck
)

_probes = OperationGroup(Tag.PROBES)
GET_HEALTH = replace(
    _probes.get(routes.HEALTH, "Check that the control plane answers.", Health), needs_token=False
)
GET_METRICS = replace(
    _probes.get(routes.METRICS, "Show the metrics as Prometheus text.", str), media=(TEXT,)
)
GET_OPENAPI = replace(
    _probes.get(routes.OPENAPI, "Show this document.", dict[str, Any]), needs_token=False
)


def _openai(method: str, path: str) -> Operation:
    reason = "OpenAI's API (docs/openai-batch.md)"
    return Operation(method=method, path=path, excluded=reason)


UPLOAD_FILE = _openai("POST", routes.OPENAI_FILES)
LIST_FILES = _openai("GET", routes.OPENAI_FILES)
GET_FILE = _openai("GET", routes.OPENAI_FILE)
DELETE_FILE = _openai("DELETE", routes.OPENAI_FILE)
GET_FILE_CONTENT = _openai("GET", routes.OPENAI_FILE_CONTENT)
CREATE_BATCH = _openai("POST", routes.OPENAI_BATCHES)
LIST_BATCHES = _openai("GET", routes.OPENAI_BATCHES)
GET_BATCH = _openai("GET", routes.OPENAI_BATCH)
CANCEL_BATCH = _openai("POST", routes.OPENAI_BATCH_CANCEL)
PLAN_BATCH = _openai("POST", routes.OPENAI_BATCH_PLAN)
LIST_MODELS = _openai("GET", routes.OPENAI_MODELS)
GET_MODEL = _openai("GET", routes.OPENAI_MODEL)


def _internal(method: str, path: str, user: str) -> Operation:
    return Operation(
        method=method, path=path, excluded=f"for {user} of the same release, which may change it"
    )


CONNECT_WORKER = _internal("GET", routes.WORKER, "workers")
LIST_ROUTER_SERVICES = _internal("GET", routes.ROUTER, "routers")
REPORT_REQUESTS = _internal("POST", routes.ROUTER, "routers")
REVIEW_CALLER = _internal("POST", routes.ROUTER_CALLERS, "routers")


def operations() -> dict[str, Operation]:
    """Returns every operation by its operation id."""
    return {
        _camel_case(name): value
        for name, value in globals().items()
        if isinstance(value, Operation)
    }


def _camel_case(name: str) -> str:
    first, *others = name.lower().split("_")
    return first + "".join(word.capitalize() for word in others)
