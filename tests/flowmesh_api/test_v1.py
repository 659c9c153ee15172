"""The types of version 1 have the JSON that the control plane answers and reads."""

import ast
import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.golden.api import (
    ANSWER_TYPES,
    BODY_TYPES,
    CONTENT_ROUTES,
    FILLED,
    NOT_JSON_ROUTES,
    Answer,
    answers,
    filled_texts,
    without_integers,
)

import flowmesh_api
from flowmesh_api.v1 import (
    audit,
    engines,
    enums,
    errors,
    fabric,
    lineage,
    plan,
    receipts,
    routes,
    runs,
    trace,
    why,
)
from flowmesh_api.v1.enums import (
    ActionState,
    HitKind,
    Phase,
    RejectionCause,
    Sharing,
    StepState,
    Verdict,
)
from flowmesh_api.v1.lineage import Direction
from flowmesh_control.api import responses as answering
from flowmesh_core.errors import FailureKind

ANSWERS: dict[str, Any] = {
    "POST /v1/runs": runs.RunAccepted,
    "POST /v1/plan": plan.Forecast,
    "GET /v1/runs": list[runs.RunSummary],
    "GET /v1/runs/{uid}": runs.RunStatus,
    "GET /v1/runs/{uid}/watch": runs.RunStatus,
    "POST /v1/runs/{uid}/cancel": runs.RunStatus,
    "POST /v1/runs/{uid}/amend": runs.RunStatus,
    "POST /v1/runs/{uid}/repin": runs.RepinnedRun,
    "GET /v1/runs/{uid}/logs": list[runs.StepLogLine],
    "GET /v1/runs/{uid}/why": why.Why,
    "GET /v1/runs/{uid}/explain": why.Explanation,
    "GET /v1/runs/{uid}/receipt": receipts.Receipt,
    "GET /v1/receipts": receipts.ReceiptPage,
    "GET /v1/runs/{uid}/outputs": runs.Outputs,
    "POST /v1/datasets": runs.Uploaded,
    "POST /v1/trees": runs.Uploaded,
    "GET /v1/workers": list[fabric.WorkerStatus],
    "POST /v1/workers/{name}/drain": fabric.DrainAccepted,
    "GET /v1/engines": list[engines.OfferedEngine],
    "GET /v1/fabric": fabric.FabricStatus,
    "GET /v1/policies": list[fabric.CachePolicy],
    "PUT /v1/policies": list[fabric.CachePolicy],
    "GET /v1/lineage/{name}": lineage.LineageWalk,
    "GET /v1/lineage/{name}/rows": lineage.RowOrigins,
    "GET /v1/runs/{uid}/lineage": lineage.LineageWalk,
    "GET /v1/runs/{uid}/lineage/rows": lineage.RowOrigins,
    "GET /v1/runs/{uid}/made": list[lineage.ProducedArtifact],
    "GET /v1/runs/{uid}/trace": trace.RecordedRun,
    "POST /v1/runs/{uid}/audit": audit.AuditAccepted,
    "GET /v1/audits": list[audit.AuditReport],
    "GET /v1/audits/{uid}": audit.AuditReport,
    "GET /v1/quarantine": list[audit.QuarantineEntry],
    "DELETE /v1/quarantine/{name}": audit.QuarantineEntry,
    "GET /v1/cache/stats": fabric.CacheStats,
    "POST /v1/cache/gc": fabric.CollectionReport,
    "POST /v1/cache/purge": fabric.PurgeReport,
    "GET /healthz": fabric.Health,
}
BODIES: dict[str, Any] = {
    "POST /v1/runs": runs.SubmitBody,
    "POST /v1/plan": runs.SubmitBody,
    "POST /v1/runs/{uid}/cancel": runs.CancelBody,
    "POST /v1/runs/{uid}/amend": runs.AmendBody,
    "POST /v1/runs/{uid}/audit": audit.AuditBody,
    "PUT /v1/policies": list[fabric.CachePolicy],
    "POST /v1/cache/purge": fabric.PurgeBody,
}
OF_ANOTHER_SPECIFICATION = {"GET /v1/runs/{uid}/openlineage"}
"""Its events are OpenLineage's."""
STORED = [a for a in answers() if a.is_error or a.route in ANSWERS]
_FILLED: dict[str, Any] = {
    **{f"{route} answers": kind for route, kind in ANSWERS.items()},
    **{f"{route} is sent": kind for route, kind in BODIES.items()},
    "errors": errors.ErrorDocument,
}
FILLED_TYPES = {name: _FILLED[name] for name in json.loads(FILLED.read_text()) if name in _FILLED}
ENUMS: list[tuple[type[StrEnum], type[StrEnum]]] = [
    (enums.ActionState, ActionState),
    (enums.FailureKind, FailureKind),
    (enums.HitKind, HitKind),
    (enums.Phase, Phase),
    (enums.RejectionCause, RejectionCause),
    (enums.Sharing, Sharing),
    (enums.StepState, StepState),
    (enums.Verdict, Verdict),
    (lineage.Direction, Direction),
]


@pytest.mark.parametrize("answer", STORED, ids=str)
def test_a_stored_answer_decodes_and_encodes_to_itself(answer: Answer) -> None:
    kind = errors.ErrorDocument if answer.is_error else ANSWERS[answer.route]
    encoded = [msgspec.json.encode(msgspec.json.decode(part, type=kind)) for part in answer.parts()]
    assert encoded == [without_integers(part) for part in answer.parts()]


@pytest.mark.parametrize("name", FILLED_TYPES)
def test_a_filled_value_has_the_json_of_the_servers_type(name: str) -> None:
    recorded = json.loads(FILLED.read_text())[name]
    assert filled_texts({name: FILLED_TYPES[name]})[name] == recorded
    decoded = msgspec.json.decode(recorded, type=FILLED_TYPES[name])
    assert msgspec.json.encode(decoded).decode() == recorded


def test_every_route_has_a_type() -> None:
    assert ANSWERS.keys() == ANSWER_TYPES.keys() - OF_ANOTHER_SPECIFICATION
    assert BODIES.keys() == BODY_TYPES.keys()


def test_every_path_has_a_constant() -> None:
    served = {
        route.partition(" ")[2] for route in ANSWER_TYPES.keys() | CONTENT_ROUTES | NOT_JSON_ROUTES
    }
    assert {path for name, path in vars(routes).items() if name.isupper()} == served


@pytest.mark.parametrize(("ours", "theirs"), ENUMS, ids=lambda kind: kind.__name__)
def test_an_enum_has_the_members_of_the_servers(ours: type[StrEnum], theirs: type[StrEnum]) -> None:
    assert {m.name: m.value for m in ours} == {m.name: m.value for m in theirs}


def test_error_codes_are_the_servers() -> None:
    codes = {errors.DAMAGED_RECORD, errors.STORE_ACCESS}
    assert codes == {code for _, code in answering._CODES}


def test_the_package_imports_msgspec_and_the_standard_library_only() -> None:
    root = Path(next(iter(flowmesh_api.__path__)))
    allowed = sys.stdlib_module_names | {"flowmesh_api", "msgspec"}
    imported = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").partition(".")[0])
    assert imported >= {"msgspec"}
    assert imported - allowed == set()
