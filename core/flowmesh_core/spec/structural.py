"""From pydantic's JSON schema to Kubernetes' structural schemas.

A structural schema has no references and no alternatives, and gives every value a type, or marks it
as opaque. Rules across fields are in CEL (``x-kubernetes-validations``).
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from flowmesh_core.spec.fields import CEL_RULES, FILLED, LIST_KEYS, PARAMETER_PATTERN

INT_OR_STRING = "x-kubernetes-int-or-string"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
_COPIED_KEYS = (
    INT_OR_STRING,
    "type",
    "description",
    "enum",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
    LIST_KEYS,
    CEL_RULES,
)
_LIST_TYPE = "x-kubernetes-list-type"


def structural_schema(model: type[BaseModel], *, has_parameters: bool = False) -> dict[str, Any]:
    """Returns the structural schema of a model.

    With ``has_parameters``, texts with a reference to one are taken where one may be filled in.
    Defaults are left out, since the API server would write them into the objects. The API server
    prunes unknown fields, and ``kubectl``'s own validation reports them.
    """
    schema = model.model_json_schema(by_alias=True)
    if not has_parameters:
        schema = _without_parameters(schema)
    return _structural(schema, schema.get("$defs", {}))


def _structural(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    schema = _resolved(schema, definitions)
    out = {key: schema[key] for key in _COPIED_KEYS if key in schema}
    if "const" in schema:
        out["enum"] = [schema["const"]]
    if "properties" in schema:
        out["properties"] = {
            name: _structural(inner, definitions) for name, inner in schema["properties"].items()
        }
        if schema.get("additionalProperties") is True:
            out[PRESERVE] = True
    elif schema.get("type") == "object":
        inner = schema.get("additionalProperties", True)
        for by_pattern in schema.get("patternProperties", {}).values():
            inner = by_pattern  # names are checked against the pattern at admission
        if isinstance(inner, Mapping) and set(inner) - {"title"}:
            out["additionalProperties"] = _structural(inner, definitions)
        else:
            out[PRESERVE] = True
    elif schema.get("type") == "array":
        out["items"] = _structural(schema.get("items", {}), definitions)
        if LIST_KEYS in schema:
            out[_LIST_TYPE] = "map"
    elif "type" not in schema and INT_OR_STRING not in schema:
        out[PRESERVE] = True
    return out


def _or_parameter(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema of a field in whose place a parameter may stand; admission checks it."""
    kind = schema["type"]
    described = {k: schema[k] for k in ("description",) if k in schema}
    if kind == "string":
        own = schema["pattern"] if "pattern" in schema else f"^({'|'.join(schema['enum'])})$"
        return {**described, "type": kind, "pattern": f"{own}|{PARAMETER_PATTERN}"}
    if kind == "integer":
        bounds = {k: schema[k] for k in ("minimum", "maximum") if k in schema}
        return {**described, INT_OR_STRING: True, **bounds, "pattern": PARAMETER_PATTERN}
    return described  # of any type


def _without_parameters(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_parameters(v) for k, v in value.items() if k not in FILLED}
    return [_without_parameters(v) for v in value] if isinstance(value, list) else value


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema without a reference, and without the null that means "not given".

    That of a field in whose place a parameter may stand takes texts with one, too.
    """
    out = dict(schema)
    while "$ref" in out or "anyOf" in out:
        if "$ref" in out:
            found = definitions[out.pop("$ref").rpartition("/")[2]]
        else:
            options = [o for o in out.pop("anyOf") if o.get("type") != "null"]
            types = {o.get("type") for o in options}
            if types == {"integer", "string"}:
                options = [{INT_OR_STRING: True}]
            elif types == {"object", "string"}:
                options = [{}]  # of any type: admission checks it
            if len(options) != 1:
                raise ValueError(
                    f"{options} are alternatives, which a structural schema cannot have"
                )
            found = options[0]
        out = {**found, **out}
    return _or_parameter(out) if FILLED.keys() <= out.keys() else out
