"""Inputs of services that are outputs of a workflow."""

from typing import Any

import pytest
from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_core.errors import SpecError
from flowmesh_core.graph.plan import ArtifactSource
from flowmesh_core.graph.service_plan import compile_service
from flowmesh_core.spec.service import FlowMeshService

REFERENCE = "cas:model:" + "1" * 64 + "." + "2" * 34


def service(**given: Any) -> FlowMeshService:
    component = {"uses": "llm.generate", "inputs": {"model": "inputs.tuned"}}
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": "ask", "namespace": "team-a"},
        "spec": {"inputs": {"tuned": given}, "components": {"llm": component}},
    }
    return FlowMeshService.model_validate(document)


def problems(found: FlowMeshService, **uploads: str) -> dict[str, str]:
    with pytest.raises(SpecError) as raised:
        compile_service(found, builtin_catalog(), uploads)
    return {p.path.removeprefix("spec.inputs.tuned"): p.message for p in raised.value.problems}


@pytest.mark.parametrize("output", ["train/model", "team-a/train/model"])
def test_an_output_is_used_by_the_reference_that_the_control_plane_found(output: str) -> None:
    plan = compile_service(service(output=output), builtin_catalog(), {"tuned": REFERENCE})
    assert plan.imports.outputs == {"tuned": (ArtifactSource("model", REFERENCE),)}
    assert plan.imports.steps == ()


def test_an_output_that_no_run_has_published_is_named() -> None:
    assert problems(service(output="train/model"))[".output"] == (
        "no run of workflow 'train' that succeeded has published 'model': run it first, or correct"
        " the name"
    )
    compile_service(service(output="train/model"), builtin_catalog(), validate_only=True)


def test_outputs_of_another_namespace_and_names_of_another_form_are_refused() -> None:
    found = problems(service(output="team-b/train/model"), tuned=REFERENCE)
    assert found[".output"].startswith(
        "'team-b/train/model' is of namespace team-b: expected one of team-a"
    )
    found = problems(service(output="model"), tuned=REFERENCE)
    assert found[".output"] == "'model' is not an output: expected WORKFLOW/OUTPUT"


def test_an_output_is_the_only_source_of_an_input_and_alone_is_followed() -> None:
    found = problems(service(output="train/model", model="smollm2-135m-instruct"))
    assert found[""].endswith("got output and model")
    with pytest.raises(ValueError, match="follow is for output"):
        service(model="smollm2-135m-instruct", follow=True)
