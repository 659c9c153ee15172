"""Checks the JSON schema of requests to a service, when the service is applied."""

from typing import Any

from flowmesh_core.graph.engine_stages import Report
from flowmesh_core.graph.schemas import schema_problem
from flowmesh_core.json_schemas import BoundedSchema, SchemaRefusedError
from flowmesh_core.spec.service import ServiceSpec
from flowmesh_core.spec.suggestions import did_you_mean, nearest

_MORE = frozenset({"$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties"})
"""Keywords with which a schema may name further properties than those in ``properties``."""


def check_request_schema(spec: ServiceSpec, report: Report) -> None:
    """Reports why the schema of requests cannot be used."""
    schema = spec.request.schema_
    if schema and (problem := schema_problem(schema) or _problem_of(schema)):
        report(("spec", "request", "schema"), problem)


def request_field_problem(schema: dict[str, Any], field: str) -> str:
    """Returns why a stage cannot read a field of the request; empty where it can.

    An open schema allows other fields than its properties; one that is named nearly as a property
    is a typo, and would be an empty text at each request.
    """
    known = schema.get("properties")
    if not isinstance(known, dict) or field in known or schema.keys() & _MORE:
        return ""
    others = schema.get("additionalProperties")
    if others is False or (others is None and nearest(field, known) is not None):
        return f"request.schema has no property {field!r}{did_you_mean(field, known)}"
    return ""


def _problem_of(schema: dict[str, Any]) -> str:
    if schema.get("type", "object") != "object":
        return f"it is of type {schema['type']!r}: expected 'object', as a request is a JSON object"
    try:
        BoundedSchema(schema, "the schema")
    except SchemaRefusedError as error:
        return error.message
    return ""
