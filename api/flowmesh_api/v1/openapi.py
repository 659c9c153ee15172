"""The description of the control API by OpenAPI 3.1, made from the table of its operations.

``make generate`` writes it to ``docs/openapi.json``, and the control plane serves it at
``/openapi.json``.
"""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from flowmesh_api.v1.errors import ErrorDocument
from flowmesh_api.v1.operation import JSON, JSON_LINES, Operation, Tag
from flowmesh_api.v1.operations import operations
from flowmesh_api.v1.version import API_VERSION

_SCHEMAS = "#/components/schemas/{name}"
_RUN = "A run's uid, its beginning, or a name, which stands for its latest run."
PATH_PARAMETERS = {
    "runs/{uid}": _RUN,
    "audits/{uid}": _RUN,
    "outputs/{name}": "An output of the workflow.",
    "lineage/{name}": "An artifact's digest, its beginning, or a reference.",
    "workers/{name}": "A worker's name.",
    "quarantine/{name}": "A signature class, or its beginning.",
    "services/{name}": "A service's name.",
    "tokens/{id}": "A token's id.",
}
"""What is written for a path parameter, by the segment before it."""
_DESCRIPTION = """\
Runs, content and services of a FlowMesh fabric. Each request needs a user's token, and a right \
(docs/api.md). Within version 1 fields, parameters and operations are only added: a client ignores \
fields that it does not know.

Not described here: {excluded}."""
_ERRORS = """\
Why the request was refused: 400 malformed, 401 no valid token, 402 budget or deadline cannot be \
met, 403 not allowed, 404 not found, 405 another method, 408 the body stopped, 409 not in this \
state, 410 gone, 413 too large, 422 mistakes in the document, 429 too many requests, 500 a fault, \
503 something does not answer, 507 the store is full. 429 and 503 have `Retry-After`."""
_OPENAI = {
    "name": "openai",
    "description": "Files, batches and models below `/openai/v1`, as OpenAI describes them.",
    "externalDocs": {"url": "https://platform.openai.com/docs/api-reference/batch"},
}


def encoded_document() -> bytes:
    """Returns the description as JSON."""
    return msgspec.json.encode(_document())


def document() -> dict[str, Any]:
    """Returns the description as the values that its JSON has."""
    found: dict[str, Any] = msgspec.json.decode(encoded_document())
    return found


def _document() -> dict[str, Any]:
    shown = {name: o for name, o in operations().items() if not o.excluded}
    schemas, components = _schemas(list(shown.values()))
    paths: dict[str, dict[str, Any]] = {}
    for name, operation in shown.items():
        described = _described(name, operation, schemas)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "FlowMesh control API",
            "version": API_VERSION,
            "description": _DESCRIPTION.format(excluded="; ".join(_excluded())),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"token": []}],
        "tags": [*({"name": t.value, "description": t.description} for t in Tag), _OPENAI],
        "paths": dict(sorted(paths.items())),
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {
                "Error": {
                    "description": _ERRORS,
                    "content": {JSON: {"schema": schemas[repr(ErrorDocument)]}},
                }
            },
            "schemas": dict(sorted(components.items())),
        },
    }


def _excluded() -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for operation in operations().values():
        if operation.excluded:
            reasons.setdefault(operation.excluded, []).append(f"`{operation.name}`")
    for reason, names in reasons.items():
        yield f"{', '.join(names)}: {reason}"


def _schemas(shown: list[Operation]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the schemas of types by their ``repr``, and the named ones that they refer to."""
    types: dict[str, Any] = {repr(ErrorDocument): ErrorDocument}
    for operation in shown:
        kinds = [operation.answer, operation.body, *(q.kind for q in operation.query)]
        types |= {repr(kind): kind for kind in kinds if kind is not None}
    made, components = msgspec.json.schema_components(types.values(), ref_template=_SCHEMAS)
    for component in components.values():
        _use_docstring(component)
    return dict(zip(types, made, strict=True)), components


def _use_docstring(schema: dict[str, Any]) -> None:
    """Gives a schema and its properties the parts of a docstring that describe them."""
    schema.pop("title", None)
    text = inspect.cleandoc(schema.pop("description", "")).replace("``", "`")
    text, _, attributes = text.partition("\n\nAttributes:\n")
    if text:
        schema["description"] = _one_line(text)
    described = dict(_attributes(attributes))
    for name, field in schema.get("properties", {}).items():
        if (key := _bare(name)) in described:
            field["description"] = described[key]


def _attributes(text: str) -> Iterator[tuple[str, str]]:
    """Yields the fields of a docstring's attributes, each with what is written for it."""
    for part in re.split(r"^ {4}(?=\w)", text, flags=re.MULTILINE)[1:]:
        names, _, written = part.partition(":")
        for name in names.split(","):
            yield _bare(name), _one_line(written)


def _bare(name: str) -> str:
    """Returns a field's name as Python and JSON both have it, without underscores and capitals."""
    return name.strip().replace("_", "").lower()


def _one_line(text: str) -> str:
    return re.sub(r"\bNone\b", "null", " ".join(text.split()))


def _described(name: str, operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": name,
        "tags": [operation.tag.value],
        "summary": operation.summary,
    }
    if parameters := [*_path_parameters(operation), *_query_parameters(operation, schemas)]:
        found["parameters"] = parameters
    if operation.body is not None:
        content = {operation.body_media: _content(operation.body, schemas)}
        found["requestBody"] = {"required": operation.body_required, "content": content}
    if not operation.needs_token:
        found["security"] = []
    content = {media: _content(operation.answer, schemas) for media in operation.media}
    line = "Each line is one." if operation.media == (JSON_LINES,) else "The answer."
    found["responses"] = {
        **{str(status): {"description": line, "content": content} for status in operation.statuses},
        "default": {"$ref": "#/components/responses/Error"},
    }
    return found


def _content(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """Returns the description of a body: bytes are of any form, which is to have no schema."""
    return {} if kind is bytes else {"schema": schemas[repr(kind)]}


def _path_parameters(operation: Operation) -> Iterator[dict[str, Any]]:
    for segment, name in re.findall(r"([\w-]+/\{(\w+)\})", operation.path):
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "description": PATH_PARAMETERS[segment],
            "schema": {"type": "string"},
        }


def _query_parameters(operation: Operation, schemas: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for parameter in operation.query:
        found = {
            "name": parameter.name,
            "in": "query",
            "description": parameter.summary,
            "schema": schemas[repr(parameter.kind)],
        }
        yield {**found, "required": True} if parameter.required else found
