"""The description of the API: what it promised stays, and recorded answers are as it says."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from tests.golden.api import Answer, answers
from tests.golden.openapi import entries, problems, read
from tests.golden.openapi_schemas import is_described
from tests.golden.openapi_schemas import problems as problems_of_answer

from flowmesh_api.v1.openapi import document

ANSWERS = [a for a in answers() if a.is_error or is_described(a.route)]
DOCUMENT = document()
Change = Callable[[dict[str, Any]], Any]


def test_nothing_that_clients_rely_on_is_removed_or_changed() -> None:
    assert list(problems(read(), entries(DOCUMENT))) == []


def test_every_promise_is_recorded() -> None:
    remedy = "record what is new: python -m tests.golden.openapi --write"
    assert entries(DOCUMENT) == read(), remedy


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
def test_a_recorded_answer_is_as_described(answer: Answer) -> None:
    media = answer.content_type
    assert list(problems_of_answer(answer.route, answer.status, media, answer.body)) == []


def _schema(described: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = described["components"]["schemas"][name]
    return found


def _operation(described: dict[str, Any], path: str, method: str = "get") -> dict[str, Any]:
    found: dict[str, Any] = described["paths"][path][method]
    return found


def _changed(change: Change) -> list[str]:
    described = copy.deepcopy(DOCUMENT)
    change(described)
    return list(problems(entries(DOCUMENT), entries(described)))


BREAKING: dict[str, tuple[Change, str]] = {
    "a removed field": (
        lambda d: _schema(d, "RunStatus")["properties"].pop("eta_s"),
        "RunStatus.eta_s is gone",
    ),
    "another type": (
        lambda d: _schema(d, "Receipt")["properties"].update(executed={"type": "string"}),
        "Receipt.executed was",
    ),
    "another default": (
        lambda d: _schema(d, "RunStatus")["properties"]["eta_s"].update(default=0.0),
        "RunStatus.eta_s was",
    ),
    "a field that may be missing now": (
        lambda d: _schema(d, "RunAccepted")["required"].remove("uid"),
        "RunAccepted.uid was",
    ),
    "a removed choice": (
        lambda d: _schema(d, "Verdict")["enum"].remove("same"),
        "Verdict was",
    ),
    "an item in front of others": (
        lambda d: _schema(d, "ScoredWorker")["prefixItems"].insert(0, {"type": "integer"}),
        "ScoredWorker was",
    ),
    "a removed operation": (
        lambda d: d["paths"].pop("/v1/receipts"),
        "GET /v1/receipts",
    ),
    "another operation id": (
        lambda d: _operation(d, "/v1/runs").update(operationId="runs"),
        "GET /v1/runs was",
    ),
    "a removed parameter": (
        lambda d: _operation(d, "/v1/runs")["parameters"].clear(),
        "GET /v1/runs query namespace is gone",
    ),
    "another answer": (
        lambda d: _operation(d, "/v1/fabric")["responses"].update(
            {"200": {"content": {"application/json": {"schema": {"type": "object"}}}}}
        ),
        "GET /v1/fabric 200 was",
    ),
    "a removed media type": (
        lambda d: _operation(d, "/v1/content")["responses"]["200"]["content"].popitem(),
        "GET /v1/content 200 was",
    ),
    "a field that requests must have now": (
        lambda d: (
            _schema(d, "AuditBody")["properties"].update(reason={"type": "string"}),
            _schema(d, "AuditBody").setdefault("required", []).append("reason"),
        ),
        "AuditBody.reason is new and required",
    ),
    "a parameter that requests must have now": (
        lambda d: _operation(d, "/v1/workers").update(
            parameters=[
                {"name": "pool", "in": "query", "required": True, "schema": {"type": "string"}}
            ]
        ),
        "GET /v1/workers query pool is new and required",
    ),
}
ADDITIONS: dict[str, Change] = {
    "a field": lambda d: _schema(d, "RunStatus")["properties"].update(new={"type": "string"}),
    "a field that requests may have": lambda d: _schema(d, "AuditBody")["properties"].update(
        reason={"type": "string", "default": ""}
    ),
    "a field that answers always have": lambda d: (
        _schema(d, "RunAccepted")["properties"].update(new={"type": "string"}),
        _schema(d, "RunAccepted")["required"].append("new"),
    ),
    "a choice": lambda d: _schema(d, "Verdict")["enum"].append("unsure"),
    "an item at the end": lambda d: _schema(d, "ScoredWorker")["prefixItems"].append({}),
    "an operation": lambda d: d["paths"].update({"/v1/new": d["paths"]["/v1/plan"]}),
    "a parameter": lambda d: _operation(d, "/v1/workers").update(
        parameters=[{"name": "pool", "in": "query", "schema": {"type": "string"}}]
    ),
    "a media type": lambda d: _operation(d, "/v1/fabric")["responses"]["200"]["content"].update(
        {"application/cbor": {}}
    ),
    "other words": lambda d: _schema(d, "RunStatus").update(description="A run."),
}


@pytest.mark.parametrize("name", BREAKING)
def test_a_change_that_breaks_clients_is_refused(name: str) -> None:
    change, message = BREAKING[name]
    found = _changed(change)
    assert found
    assert all(message in problem for problem in found), found


@pytest.mark.parametrize("name", ADDITIONS)
def test_an_addition_is_not_refused(name: str) -> None:
    assert _changed(ADDITIONS[name]) == []
