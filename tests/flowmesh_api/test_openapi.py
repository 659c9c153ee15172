"""The description of the API is valid OpenAPI, and describes the types as they are encoded."""

import copy
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from tests.golden.api import filled
from tests.golden.openapi_schemas import BODY, problems

from flowmesh_api.v1 import routes
from flowmesh_api.v1.openapi import document
from flowmesh_api.v1.operation import Operation
from flowmesh_api.v1.operations import operations

DOCUMENT = document()
SHOWN = [o for o in operations().values() if not o.excluded]
STRUCTURED = [o for o in SHOWN if o.answer is not bytes and o.path != routes.OPENAPI]


def _mistakes(described: dict[str, Any]) -> list[str]:
    return [str(error) for error in OpenAPIV31SpecValidator(described).iter_errors()]


@pytest.mark.slow
def test_the_description_is_valid() -> None:
    assert _mistakes(DOCUMENT) == []


def _get(described: dict[str, Any], path: str) -> dict[str, Any]:
    found: dict[str, Any] = described["paths"][path]["get"]
    return found


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["components"]["schemas"]["StepStatus"].update(type="step"),
        lambda d: _get(d, "/v1/runs/{uid}")["parameters"].clear(),
        lambda d: _get(d, "/v1/runs").update(operationId="getRun"),
        lambda d: d["info"].pop("title"),
    ],
    ids=["schema", "path parameter", "operation id", "info"],
)
def test_a_wrong_description_is_refused(change: Callable[[dict[str, Any]], Any]) -> None:
    described = copy.deepcopy(DOCUMENT)
    _reduce(described)
    assert _mistakes(described) == []
    change(described)
    assert _mistakes(described)


def _reduce(described: dict[str, Any]) -> None:
    """Keeps two operations: what checks a whole description takes seconds."""
    paths, schemas = described["paths"], described["components"]["schemas"]
    described["paths"] = {path: {"get": paths[path]["get"]} for path in (routes.RUNS, routes.RUN)}
    names = ("RunStatus", "StepStatus", "RunSummary", "ErrorDocument", "ErrorDetails", "Problem")
    described["components"]["schemas"] = {name: schemas[name] for name in names}


def test_every_path_parameter_is_described() -> None:
    for path, methods in DOCUMENT["paths"].items():
        for operation in methods.values():
            described = [p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"]
            assert described == re.findall(r"\{(\w+)\}", path)


def test_every_reference_leads_to_a_schema() -> None:
    text = msgspec.json.encode(DOCUMENT).decode()
    named = set(re.findall(r'"\$ref":"#/components/schemas/([^"]+)"', text))
    assert named == DOCUMENT["components"]["schemas"].keys()


@pytest.mark.parametrize("operation", SHOWN, ids=lambda o: o.name)
def test_an_operation_has_a_sentence_and_parameters_with_their_own(operation: Operation) -> None:
    sentences = [operation.summary, *(parameter.summary for parameter in operation.query)]
    assert all(re.fullmatch(r"[A-Z`].*\.", sentence) for sentence in sentences)


@pytest.mark.parametrize("operation", STRUCTURED, ids=lambda o: o.name)
def test_an_answer_with_every_field_is_as_described(operation: Operation) -> None:
    content = msgspec.json.encode(filled(operation.answer))
    for status in operation.statuses:
        assert list(problems(operation.name, status, operation.media[0], content)) == []


@pytest.mark.parametrize(
    "operation", [o for o in SHOWN if o.body not in (None, bytes)], ids=lambda o: o.name
)
def test_a_body_with_every_field_is_as_described(operation: Operation) -> None:
    content = msgspec.json.encode(filled(operation.body))
    assert list(problems(operation.name, BODY, operation.body_media, content)) == []


def test_fields_have_the_words_of_their_docstrings() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["RunSummary"]["description"] == "A run in a list."
    assert schemas["RunStatus"]["properties"]["phase"]["description"] == "a `Phase`."
    # Several fields with one description, and names that JSON writes otherwise.
    assert "progress" in schemas["StepStatus"]["properties"]["total_units"]["description"]
    assert "without the query" in schemas["LogEntry"]["properties"]["requestURI"]["description"]


def test_what_is_left_out_is_named_with_the_reason() -> None:
    text = DOCUMENT["info"]["description"]
    for operation in operations().values():
        if operation.excluded:
            assert f"`{operation.name}`" in text
            assert operation.path not in DOCUMENT["paths"]
            assert operation.excluded in text
