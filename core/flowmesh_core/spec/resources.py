"""The custom resource definitions, and the schema for editors, as data.

``generate`` writes them to files; a test compares the files with this.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from flowmesh_core.spec.fields import (
    API_VERSION,
    CEL_RULES,
    FILLED,
    LIST_KEYS,
    PARAMETER_PATTERN,
)
from flowmesh_core.spec.policy import FlowMeshCachePolicy
from flowmesh_core.spec.pool import FlowMeshWorkerPool
from flowmesh_core.spec.quota import FlowMeshQuota
from flowmesh_core.spec.service import FlowMeshService
from flowmesh_core.spec.structural import INT_OR_STRING, PRESERVE, structural_schema
from flowmesh_core.spec.workflow import FlowMeshWorkflow

GROUP, _, VERSION = API_VERSION.partition("/")
_Column = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Definition:
    """A kind; ``wide`` columns are those of ``-o wide``, ``selectable`` are field selectors.

    ``scale`` has the paths of ``kubectl scale``.
    """

    model: type[BaseModel]
    plural: str
    short: str
    namespaced: bool
    columns: tuple[_Column, ...]
    wide: tuple[_Column, ...] = ()
    selectable: tuple[str, ...] = ()
    scale: Mapping[str, str] | None = None


_DEFINITIONS = (
    _Definition(
        FlowMeshWorkflow,
        "flowmeshworkflows",
        "fmw",
        namespaced=True,
        columns=(
            ("Phase", "string", ".status.phase"),
            ("Progress", "string", ".status.progress"),
            ("Hits", "integer", ".status.hits"),
            ("Cost", "string", ".status.costUsd"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
        wide=(
            ("Saved", "string", ".status.savedUsd"),
            ("Eta", "date", ".status.eta"),
            ("Message", "string", ".status.message"),
        ),
        selectable=(".status.phase",),
    ),
    _Definition(
        FlowMeshWorkerPool,
        "flowmeshworkerpools",
        "fmwp",
        namespaced=True,
        columns=(
            ("Desired", "integer", ".status.desired"),
            ("Ready", "integer", ".status.ready"),
            ("Busy", "integer", ".status.busy"),
            ("Backlog", "integer", ".status.backlogSeconds"),
            ("Price", "string", ".spec.price.usdPerHour"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
        # Every pool has a maximum, and one of a fixed size has that many workers.
        scale={"specReplicasPath": ".spec.maxReplicas", "statusReplicasPath": ".status.ready"},
    ),
    _Definition(
        FlowMeshCachePolicy,
        "flowmeshcachepolicies",
        "fmcp",
        namespaced=False,
        columns=(
            ("Scope", "string", ".spec.scope"),
            ("Group", "string", ".spec.group"),
            ("Namespaces", "integer", ".status.covered"),
            ("Accepted", "string", ".status.conditions[?(@.type=='Accepted')].status"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
    ),
    _Definition(
        FlowMeshQuota,
        "flowmeshquotas",
        "fmq",
        namespaced=False,
        columns=(
            ("Weight", "number", ".spec.weight"),
            ("Namespaces", "integer", ".status.covered"),
            ("Accepted", "string", ".status.conditions[?(@.type=='Accepted')].status"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
    ),
    _Definition(
        FlowMeshService,
        "flowmeshservices",
        "fms",
        namespaced=True,
        columns=(
            ("Phase", "string", ".status.phase"),
            ("Ready", "string", ".status.ready"),
            ("Model", "string", ".status.model"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
        wide=(
            ("Endpoint", "string", ".status.endpoint"),
            ("Message", "string", ".status.message"),
        ),
    ),
)


def definitions() -> dict[str, dict[str, Any]]:
    """Returns every ``CustomResourceDefinition``, by plural name."""
    return {d.plural: _definition(d) for d in _DEFINITIONS}


def _definition(d: _Definition) -> dict[str, Any]:
    kind = d.model.__name__
    schema = structural_schema(d.model, has_parameters=d.model is FlowMeshWorkflow)
    schema["properties"]["metadata"] = {"type": "object"}
    schema["properties"]["apiVersion"] = {"type": "string"}
    schema["properties"]["kind"] = {"type": "string"}
    schema["required"] = ["spec"]
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [*map(_column, d.columns), *map(_wide, d.wide)],
        "schema": {"openAPIV3Schema": schema},
    }
    if "status" in schema["properties"]:
        version["subresources"] = {"status": {}, **({"scale": d.scale} if d.scale else {})}
    if d.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in d.selectable]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{d.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if d.namespaced else "Cluster",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": d.plural,
                "singular": kind.lower(),
                "shortNames": [d.short],
                "categories": ["flowmesh"],
            },
            "versions": [version],
        },
    }


def _column(column: _Column) -> dict[str, Any]:
    name, of, path = column
    return {"name": name, "type": of, "jsonPath": path}


def _wide(column: _Column) -> dict[str, Any]:
    return {**_column(column), "priority": 1}


def editor_schema() -> dict[str, Any]:
    """Returns one JSON schema of all kinds, for editors that check YAML."""
    models = [d.model for d in _DEFINITIONS]
    refs, schema = models_json_schema([(m, "validation") for m in models], by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "FlowMesh",
        "description": "A workflow, service, worker pool, cache policy or quota of FlowMesh.",
        "oneOf": [refs[m, "validation"] for m in models],
        "$defs": _with_parameters(_without_kubernetes(schema["$defs"])),
    }


def pool_values_schema() -> dict[str, Any]:
    """Returns the JSON schema of a pool in the chart's values.

    That is its object's spec, of which the chart adds the image. Fields that the API server would
    prune are refused; a pool that is null is left out.
    """
    schema = _strict(structural_schema(FlowMeshWorkerPool)["properties"]["spec"])
    schema["required"].remove("image")
    return {**schema, "type": ["object", "null"]}


def _strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a structural schema as a JSON schema that takes only the fields that it names."""
    out = {k: v for k, v in schema.items() if k != "description" and not k.startswith("x-")}
    if "properties" in schema:
        out["properties"] = {name: _strict(one) for name, one in schema["properties"].items()}
        if PRESERVE not in schema:
            out["additionalProperties"] = False
    elif "additionalProperties" in schema:
        out["additionalProperties"] = _strict(schema["additionalProperties"])
    if "items" in schema:
        out["items"] = _strict(schema["items"])
    if INT_OR_STRING in schema:
        out["type"] = ["integer", "string"]
    return out


def _with_parameters(value: Any) -> Any:
    """The schema with an alternative for each field in whose place a parameter may stand."""
    if isinstance(value, list):
        return [_with_parameters(v) for v in value]
    if not isinstance(value, dict):
        return value
    inner = {k: _with_parameters(v) for k, v in value.items() if k not in FILLED}
    if len(inner) == len(value):
        return inner
    about = {k: inner.pop(k) for k in ("default", "description", "title") if k in inner}
    parameter = {"type": "string", "pattern": PARAMETER_PATTERN}
    return {**about, "anyOf": [*inner.pop("anyOf", [inner]), parameter]}


def _without_kubernetes(value: Any) -> Any:
    """The schema without the parts that only the API server reads."""
    if isinstance(value, dict):
        remaining = {k: v for k, v in value.items() if k not in {CEL_RULES, LIST_KEYS, PRESERVE}}
        return {k: _without_kubernetes(v) for k, v in remaining.items()}
    return [_without_kubernetes(v) for v in value] if isinstance(value, list) else value
