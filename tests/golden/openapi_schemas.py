"""Validates bodies and answers of the API by its description, field by field.

Clients ignore fields that they do not know; here one that the description lacks is a mistake.
"""

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from flowmesh_api.v1.openapi import document
from flowmesh_api.v1.operation import JSON_LINES

BODY = "body"


@cache
def _components() -> dict[str, Any]:
    components = copy.deepcopy(document()["components"])
    for schema in components["schemas"].values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    return {"components": components}


@cache
def _operations() -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    }


@cache
def _content(route: str, status: str) -> dict[str, Any]:
    """Returns the described content of a body or an answer, by media type."""
    operation = _operations()[route]
    if status == BODY:
        found: dict[str, Any] = operation["requestBody"]["content"]
        return found
    described = operation["responses"].get(status, operation["responses"]["default"])
    if "$ref" in described:
        described = _components()["components"]["responses"][described["$ref"].split("/")[-1]]
    content: dict[str, Any] = described["content"]
    return content


@cache
def _validator(route: str, status: str, media: str) -> Draft202012Validator | None:
    schema = _content(route, status)[media].get("schema")
    return None if schema is None else Draft202012Validator({**schema, **_components()})


def is_described(route: str) -> bool:
    """Whether the description has a route."""
    return route in _operations()


def problems(route: str, status: int | str, media: str, content: bytes) -> Iterator[str]:
    """Yields what is not as the description says, of an answer, or of a body (``BODY``).

    An error of a request to a path that is not described is one of the first operation.
    """
    route = route if is_described(route) else next(iter(_operations()))
    described = _content(route, str(status))
    if media not in described:
        yield f"{route} {status}: {media} is not one of {', '.join(described)}"
        return
    validator = _validator(route, str(status), media)
    if validator is None:
        return
    for part in content.splitlines() if media == JSON_LINES else [content]:
        for error in validator.iter_errors(json.loads(part)):
            yield f"{route} {status}: {error.json_path}: {error.message[:300]}"
