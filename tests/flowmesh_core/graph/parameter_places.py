"""A workflow with a value in every place where a parameter may stand."""

from typing import Any

from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_core.graph.compile import compile_workflow
from flowmesh_core.graph.plan import Plan
from flowmesh_core.spec.load import parse_object
from flowmesh_core.spec.workflow import FlowMeshWorkflow

WRITTEN: dict[str, Any] = {
    "budgetUsd": "0.50",
    "deadline": "30m",
    "inputs": {
        "base": {"model": "smollm2-135m-instruct"},
        "q": {"rows": [{"question": "What of foxes?", "target": "2"}]},
        "more": {"dataset": "hf://datasets/org/name", "limit": 10, "columns": ["question"]},
    },
    "steps": [
        {
            "name": "ask",
            "uses": "llm.generate",
            "inputs": {"model": "inputs.base", "rows": "inputs.q"},
            "matrix": {"n": [1, 2], "t": [0.5, "x"]},
            "with": {"prompt": "{{ question }}", "samples": 4},
            "resources": {
                "memory": "4Gi",
                "gpuProduct": ["A", "B"],
                "tensorParallel": 1,
                "labels": {"zone": "a"},
                "antiLabels": {"tier": "b"},
            },
            "retry": {"attempts": 5, "backoff": "2s"},
            "cache": {"reuse": "run", "salt": "monday", "maxAge": "1d"},
            "timeout": "10m",
        },
        {
            "name": "score",
            "uses": "eval.exact-match",
            "inputs": {"rows": "ask[n=2,t=0.5].rows"},
            "after": ["ask[n=1,t=x]"],
            "with": {"prediction": "completion", "target": "target"},
            "when": "4 > 1",
        },
        {
            "name": "look",
            "uses": "data.sql",
            "inputs": {"m": "inputs.more"},
            "with": {"query": "select * from m limit 3"},
        },
    ],
    "outputs": {"best": "ask[n=2,t=0.5].rows"},
}
PLACES: list[tuple[Any, ...]] = [
    ("budgetUsd",),
    ("deadline",),
    ("inputs", "base", "model"),
    ("inputs", "q", "rows"),
    ("inputs", "q", "rows", 0),
    ("inputs", "q", "rows", 0, "question"),
    ("inputs", "more", "dataset"),
    ("inputs", "more", "limit"),
    ("inputs", "more", "columns"),
    ("inputs", "more", "columns", 0),
    ("steps", 0, "inputs", "model"),
    ("steps", 0, "matrix", "n"),
    ("steps", 0, "matrix", "n", 1),
    ("steps", 0, "matrix", "t"),
    ("steps", 0, "with", "samples"),
    ("steps", 0, "resources", "memory"),
    ("steps", 0, "resources", "gpuProduct"),
    ("steps", 0, "resources", "gpuProduct", 0),
    ("steps", 0, "resources", "tensorParallel"),
    ("steps", 0, "resources", "labels", "zone"),
    ("steps", 0, "resources", "antiLabels", "tier"),
    ("steps", 0, "retry", "attempts"),
    ("steps", 0, "retry", "backoff"),
    ("steps", 0, "cache", "reuse"),
    ("steps", 0, "cache", "salt"),
    ("steps", 0, "cache", "maxAge"),
    ("steps", 0, "timeout"),
    ("steps", 1, "inputs", "rows"),
    ("steps", 1, "after", 0),
    ("steps", 2, "with", "query"),
    ("outputs", "best"),
]


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _copied(v) for k, v in value.items()}
    return [_copied(v) for v in value] if isinstance(value, list) else value


def with_parameters(places: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Returns the workflow with a declared parameter in each of these places, and their values."""
    spec, params = _copied(WRITTEN), {}
    for number, place in enumerate(places):
        inner = spec
        for key in place[:-1]:
            inner = inner[key]
        value = inner[place[-1]]
        kinds = {str: "string", int: "integer", list: "list", dict: "object"}
        params[f"p{number}"] = {"type": kinds[type(value)], "default": value}
        inner[place[-1]] = f"${{params.p{number}}}"
    return {**spec, "params": params}


def as_plan(spec: dict[str, Any]) -> Plan:
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": "w"},
        "spec": spec,
    }
    workflow = parse_object(document)
    assert isinstance(workflow, FlowMeshWorkflow)
    return compile_workflow(workflow, builtin_catalog(), validate_only=True)
