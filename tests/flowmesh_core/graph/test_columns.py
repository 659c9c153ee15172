"""The columns of a step's rows, as far as the compiler knows them."""

from typing import Any

import pytest
from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_core.errors import SpecError
from flowmesh_core.graph.columns import output_columns
from flowmesh_core.graph.compile import compile_workflow
from flowmesh_core.graph.plan import Plan
from flowmesh_core.identity.coerce import effective_params
from flowmesh_core.spec.load import parse_object
from flowmesh_core.spec.workflow import FlowMeshWorkflow


def test_a_column_named_by_a_parameter_exists_if_the_parameter_is_set() -> None:
    topk = builtin_catalog().newest("retrieve.topk")
    assert topk is not None
    rows = {"rows": {"question": None}}
    without = output_columns(topk, effective_params(topk, {}), rows)
    given = output_columns(topk, effective_params(topk, {"context": "facts", "join": "x"}), rows)
    assert without == {"question": None, "found": "json"}
    assert given == {"question": None, "found": "json", "facts": "string"}


STEPS = [
    {
        "name": "ask",
        "uses": "llm.generate",
        "inputs": {"model": "inputs.base", "rows": "inputs.rows"},
        "with": {"prompt": "{{ question }}"},
    },
    {
        "name": "score",
        "uses": "eval.exact-match",
        "inputs": {"rows": "ask.rows"},
        "with": {"prediction": "answer", "target": "wanted"},
    },
]


@pytest.mark.parametrize("source", [{"rows": []}, {"dataset": "./none.jsonl"}])
def test_a_data_set_without_rows_satisfies_every_column_check(source: dict[str, Any]) -> None:
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": "w", "namespace": "a"},
        "spec": {
            "inputs": {"base": {"model": "smollm2-135m-instruct"}, "rows": source},
            "steps": STEPS,
            "outputs": {"score": "score.metrics"},
        },
    }
    workflow = parse_object(document)
    assert isinstance(workflow, FlowMeshWorkflow)

    def compiled(columns: dict[str, list[str]]) -> Plan:
        catalog = builtin_catalog()
        return compile_workflow(workflow, catalog, columns=columns, validate_only=True)

    empty = compiled({"rows": []})
    assert [step.path for step in empty.steps] == ["inputs.base", "ask", "score"]
    if "dataset" in source:  # a row would show what is missing
        with pytest.raises(SpecError, match="the rows have no such column"):
            compiled({"rows": ["text"]})
