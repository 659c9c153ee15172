"""A file gives the same workflow on a laptop and through an API server, which writes 1.0 as 1."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.flowmesh_core.catalog.built_in import builtin_catalog
from tests.flowmesh_core.graph.parameter_places import WRITTEN

from flowmesh_api.v1.services import ServiceApplication
from flowmesh_control.serving.service_content import parse_service
from flowmesh_core.dataset.infer import infer_schema
from flowmesh_core.dataset.schema import ColumnType
from flowmesh_core.graph.compile import compile_workflow
from flowmesh_core.spec.load import load_text, parse_object
from flowmesh_core.spec.workflow import FlowMeshWorkflow
from flowmesh_documents.parameters import whole_numbers


def from_api_server(value: Any) -> Any:
    """Returns a document as it is read from an API server: Go writes floats by their digits."""
    return json.loads(_in_go(value))


def _in_go(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {_in_go(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_in_go, value))}]"
    if isinstance(value, float) and 1e-6 <= abs(value) < 1e21:
        text = format(Decimal(repr(value)), "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if value == 0 and isinstance(value, float) else json.dumps(value)


def workflow(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": "x"},
        "spec": {**WRITTEN, **spec},
    }


def on_a_laptop(document: dict[str, Any]) -> FlowMeshWorkflow:
    (loaded,), problems = load_text(json.dumps(document))  # JSON is YAML
    assert problems == []
    assert isinstance(loaded.object, FlowMeshWorkflow), loaded.problems
    return loaded.object


def on_a_cluster(document: dict[str, Any]) -> FlowMeshWorkflow:
    found = parse_object(from_api_server(document))
    assert isinstance(found, FlowMeshWorkflow)
    return found


def rows_of(found: FlowMeshWorkflow) -> list[dict[str, Any]]:
    rows = found.spec.inputs["q"].rows
    assert isinstance(rows, list)
    return rows


ROWS = [
    {"question": 1.0, "v": [1.0, 0.0], "mixed": 2.0, "object": {"a": [3.0]}},
    {"question": 2.0, "v": [0.0, 1.0], "mixed": 0.5, "object": {"a": []}},
]


@pytest.mark.parametrize(
    "rows", [ROWS, "${params.rows}", [{"question": "${params.x}", "mixed": 1}]]
)
def test_rows_of_a_file_have_the_same_types_on_a_laptop_and_on_a_cluster(rows: Any) -> None:
    document = workflow(
        inputs={**WRITTEN["inputs"], "q": {"rows": rows}}, params={"x": 1.0, "rows": ROWS}
    )
    here, there = rows_of(on_a_laptop(document)), rows_of(on_a_cluster(document))
    assert repr(here) == repr(there)
    types = {c.name: c.type for c in infer_schema(here).columns}
    assert types["question"] is ColumnType.INT
    if rows != [{"question": "${params.x}", "mixed": 1}]:
        assert (types["v"], types["mixed"]) == (ColumnType.LIST_INT, ColumnType.FLOAT)


def steps(**changes: Any) -> list[dict[str, Any]]:
    first, *rest = WRITTEN["steps"]
    return [{**first, **changes}, *rest]


@pytest.mark.parametrize(
    "spec",
    [
        {"params": {"x": 1.0, "y": {"type": "number", "default": 2.0, "maximum": 3.0}}},
        {"params": {"xs": {"type": "list", "items": "number", "default": [1.0, 0.5]}}},
        {"steps": steps(matrix={"n": [1.0, 2.0], "t": [0.5, "x"]})},
        {
            "steps": steps(
                **{"with": {"prompt": "{{ question }}", "samples": 4.0, "temperature": 1.0}}
            )
        },
        {"steps": steps(when="params.x / 2 > 0.0 || true"), "params": {"x": 3.0}},
        {"steps": steps(resources={"labels": {"zone": "a"}, "tensorParallel": 1.0})},
    ],
)
def test_a_file_gives_the_same_plan_on_a_laptop_and_on_a_cluster(spec: dict[str, Any]) -> None:
    plans = [
        compile_workflow(made(workflow(**spec)), builtin_catalog(), validate_only=True)
        for made in (on_a_laptop, on_a_cluster)
    ]
    assert repr(plans[0]) == repr(plans[1])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e18, 1e18) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_any_document_is_the_same_after_an_api_server_has_stored_it(value: Any) -> None:
    assert repr(whole_numbers(value)) == repr(whole_numbers(from_api_server(value)))


def test_rows_of_a_service_have_the_same_types_on_a_laptop_and_on_a_cluster() -> None:
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": "x", "namespace": "t"},
        "spec": {
            "inputs": {"corpus": {"rows": ROWS}},
            "components": {
                "search": {"uses": "retrieve.topk", "inputs": {"corpus": "inputs.corpus"}}
            },
            "stages": [{"name": "hits", "component": "search", "inputs": {"rows": "request.v"}}],
            "reply": {"found": "hits.found"},
        },
    }
    here, there = (
        parse_service(ServiceApplication(d)) for d in (document, from_api_server(document))
    )
    assert repr(here.spec.inputs["corpus"].rows) == repr(there.spec.inputs["corpus"].rows)
