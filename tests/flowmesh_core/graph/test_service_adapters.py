"""Adapters of a service compile to inputs that its engine loads beside the model."""

from typing import Any

import pytest
from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_core.catalog.adapter_ports import adapter_contents, adapter_names, split_model
from flowmesh_core.errors import SpecError
from flowmesh_core.graph.service_plan import ServicePlan, compile_service
from flowmesh_core.serving.router_entry import router_entry
from flowmesh_core.spec.service import ADAPTERS_MAX, FlowMeshService
from flowmesh_core.units import Digest
from flowmesh_worker.engines.llm.vllm_sizes import ADAPTER_SLOTS

CATALOG = builtin_catalog()
GERMAN = {"german": "inputs.german"}


def service(component: dict[str, Any], **spec: Any) -> FlowMeshService:
    given = {"uses": "llm.generate", "inputs": {"model": "inputs.base"}, **component}
    inputs = {
        "base": {"model": "smollm2-135m-instruct"},
        "german": {"adapter": "./german"},
        "rows": {"rows": [{"a": 1}]},
    }
    return FlowMeshService.model_validate(
        {
            "apiVersion": "flowmesh.dev/v1alpha1",
            "kind": "FlowMeshService",
            "metadata": {"name": "ask", "namespace": "team-a"},
            "spec": {"inputs": inputs, "components": {"llm": given}, **spec},
        }
    )


def compiled(component: dict[str, Any], **spec: Any) -> ServicePlan:
    return compile_service(service(component, **spec), CATALOG, validate_only=True)


def problem(component: dict[str, Any], **spec: Any) -> tuple[str, str]:
    with pytest.raises(SpecError) as raised:
        compiled(component, **spec)
    found = raised.value.problems[0]
    return found.path.removeprefix("spec.components.llm."), found.message


def test_an_adapter_is_loaded_by_its_name_beside_the_model() -> None:
    (component,) = compiled({"adapters": GERMAN}).components
    assert [(e.port, e.kind) for e in component.step.edges] == [
        ("model", "model"),
        ("adapter/german", "adapter"),
    ]
    assert router_entry(service({"adapters": GERMAN}), None).adapters == ("german",)


@pytest.mark.parametrize(
    ("component", "place", "text"),
    [
        ({"adapters": {"german": "inputs.base"}}, "adapters.german", "expected an adapter"),
        ({"adapters": {"german": "inputs.germn"}}, "adapters.german", "did you mean 'german'?"),
        ({"adapters": {"german": "./german"}}, "adapters.german", "expected inputs.NAME"),
        (
            {"inputs": {"model": "inputs.base", "adapter": "inputs.german"}},
            "inputs.adapter",
            "name it in adapters",
        ),
        (
            {"uses": "llm.embed", "adapters": GERMAN},
            "adapters",
            "llm.embed cannot load adapters for a service",
        ),
        (
            {"adapters": GERMAN, "with": {"implementation": "transformers"}},
            "with.implementation",
            "transformers does not serve requests: expected vllm",
        ),
    ],
)
def test_what_cannot_be_an_adapter_is_named(
    component: dict[str, Any], place: str, text: str
) -> None:
    where, message = problem(component)
    assert (where, text in message) == (place, True), message


def test_a_service_with_stages_has_none() -> None:
    where, message = problem(
        {"adapters": GERMAN},
        stages=[{"name": "say", "component": "llm", "with": {"prompt": "{{ request.q }}"}}],
        reply={"text": "say.completion"},
    )
    assert (where, "model.merge" in message) == ("adapters", True)


def test_there_are_no_more_than_an_engine_has_slots_for() -> None:
    assert ADAPTERS_MAX == ADAPTER_SLOTS
    too_many = {f"a{n}": "inputs.german" for n in range(ADAPTERS_MAX + 1)}
    with pytest.raises(ValueError, match="at most 8 items"):
        service({"adapters": too_many})


def test_other_names_or_other_content_are_another_engine_instance() -> None:
    one, other = Digest("1" * 64), Digest("2" * 64)
    marks = {
        adapter_contents({"model": one, **adapters})
        for adapters in (
            {},
            {"adapter/a": one},
            {"adapter/a": other},
            {"adapter/b": one},
            {"adapter/a": one, "adapter/b": other},
        )
    }
    assert len(marks) == 5
    assert adapter_contents({"model": one}) == ()
    assert adapter_names(["model", "adapter/a", "adapter"]) == {"a": "adapter/a"}


def test_the_last_colon_of_a_name_is_before_the_adapter() -> None:
    assert split_model("org/m:v1:german") == ("org/m:v1", "german")
    assert split_model("m") == split_model(":german") == ("", "")
