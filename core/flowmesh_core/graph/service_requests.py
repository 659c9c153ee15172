"""Checks the JSON schema of requests to a service, when the service is applied."""

from typing import Any

from flowmesh_core.graph.engine_stages import Report
from flowmesh_core.graph.schemas import schema_problem
from flowmesh_core.json_schemas import BoundedSchema, SchemaRefusedError
from flowmesh_core.spec.service import ServiceSpec


def check_request_schema(spec: ServiceSpec, report: Report) -> None:
    """Reports why the schema of requests cannot be used."""
    schema = spec.request.schema_
    if schema and (problem := schema_problem(schema) or _problem_of(schema)):
        report(("spec", "request", "schema"), problem)


def _problem_of(schema: dict[str, Any]) -> str:
    if schema.get("type", "object") != "object":
        return f"it is of type {schema['type']!r}: expected 'object', as a request is a JSON object"
    try:
        BoundedSchema(schema, "the schema")
    except SchemaRefusedError as error:
        return error.message
    return ""
