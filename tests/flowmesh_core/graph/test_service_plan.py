"""A service compiles to imports of its models and to what its engine is loaded with."""

from typing import Any

import pytest
from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_core.errors import SpecError
from flowmesh_core.graph.plan import StepSource
from flowmesh_core.graph.service_plan import ServicePlan, compile_service
from flowmesh_core.openai.stage_check import stage_problems
from flowmesh_core.serving.router_entry import router_entry
from flowmesh_core.spec.service import FlowMeshService

CATALOG = builtin_catalog()


def compiled(model: str = "smollm2-135m-instruct", **component: Any) -> ServicePlan:
    given = {"uses": "llm.generate", "inputs": {"model": "inputs.base"}, **component}
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": "ask", "namespace": "team-a"},
        "spec": {"inputs": {"base": {"model": model}}, "components": {"llm": given}},
    }
    return compile_service(FlowMeshService.model_validate(document), CATALOG)


def problems(**component: Any) -> dict[str, str]:
    with pytest.raises(SpecError) as raised:
        compiled(**component)
    return {p.path.removeprefix("spec.components.llm."): p.message for p in raised.value.problems}


def test_models_are_imported_as_the_inputs_of_a_workflow_are() -> None:
    plan = compiled("hf://org/name")
    assert [s.engine for s in plan.imports.steps] == ["source.resolve", "model.import"]
    assert plan.imports.outputs == {"base": (StepSource("inputs.base", "model"),)}
    assert (plan.imports.name, plan.imports.namespace) == ("service-ask", "team-a")
    assert plan.model == "ask"


def test_a_component_has_the_fields_and_the_parameters_that_all_requests_share() -> None:
    (component,) = compiled(**{"with": {"dtype": "float32"}, "callsMax": 8}).components
    assert component.step.fields["dtype"] == "float32"
    assert component.step.fields["batchInvariant"] is True
    assert "temperature" not in component.step.params
    assert component.calls_max == 8


def test_the_engines_settings_are_checked_as_those_of_a_step() -> None:
    (component,) = compiled(**{"with": {"engine": {"maxModelLen": 128}}}).components
    assert component.step.params["engine"] == {"maxModelLen": 128}
    refused = {"engine": {"quantization": "best", "trust_remote_code": True}}
    assert problems(**{"with": refused}) == {
        "with.engine.quantization": "'best' is not allowed; use one of awq, gptq, fp8,"
        " bitsandbytes",
        "with.engine.trust_remote_code": "trust_remote_code is always off; convert the model",
    }


def test_a_dtype_is_one_of_those_that_the_error_lists() -> None:
    message = problems(**{"with": {"dtype": "float33"}})["with.dtype"]
    assert message.startswith("'float33' is not allowed; use one of ")
    assert "'float32'" in message


def test_at_least_one_replica_is_loaded() -> None:
    (component,) = compiled(replicas={"min": 0, "max": 4}).components
    assert (component.replicas_min, component.replicas_max) == (1, 4)


def test_what_a_component_cannot_have_is_named() -> None:
    assert "did you mean 'llm.generate'" in problems(uses="llm.generat")["uses"]
    assert (
        problems(uses="data.sql")["uses"]
        == "data.sql loads no model that a service could keep loaded"
    )
    assert "write it in requests" in problems(**{"with": {"maxTokens": 4}})["with.maxTokens"]
    assert problems(inputs={})["inputs"] == "llm.generate needs the input 'model'"
    assert "expected inputs.NAME" in problems(inputs={"model": "base.model"})["inputs.model"]


def test_more_replicas_at_least_than_at_most_are_refused() -> None:
    with pytest.raises(ValueError, match="max is 1: expected at least min, which is 2"):
        compiled(replicas={"min": 2, "max": 1})


def test_a_service_of_embeddings_loads_the_models_own_pooling_with_vllm() -> None:
    options = {"implementation": "vllm", "pooling": "auto"}
    plan = compiled(uses="llm.embed", **{"with": options})
    (component,) = plan.components
    assert component.step.fields == {"dtype": "auto", "implementation": "vllm"}
    assert component.step.params == {"pooling": "auto"}
    assert component.step.minor == 1


@pytest.mark.parametrize(
    ("slo", "uses", "message"),
    [
        ({"ttft": "1500ms"}, "llm.generate", ""),
        ({"tpot": "50ms", "latency": "9s"}, "llm.generate", ""),
        ({"ttft": "1s"}, "llm.embed", "ttft is for a service whose component uses llm.generate"),
        ({"tpot": "50ms"}, "llm.embed", "tpot is for a service whose component uses llm.generate"),
    ],
)
def test_targets_of_tokens_are_of_a_service_whose_engine_generates(
    slo: dict[str, str], uses: str, message: str
) -> None:
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": "ask", "namespace": "team-a"},
        "spec": {
            "inputs": {"base": {"model": "smollm2-135m-instruct"}},
            "components": {"llm": {"uses": uses, "inputs": {"model": "inputs.base"}}},
            "slo": slo,
        },
    }
    service = FlowMeshService.model_validate(document)
    if message:
        with pytest.raises(SpecError) as raised:
            compile_service(service, CATALOG)
        (problem,) = raised.value.problems
        assert problem.message == message
        assert problem.path == f"spec.slo.{next(iter(slo))}"
        return
    compile_service(service, CATALOG)
    entry = router_entry(service, None)
    assert entry.ttft_s == (1.5 if "ttft" in slo else 0.0)
    assert entry.tpot_s == (0.05 if "tpot" in slo else 0.0)


def test_an_engine_that_is_not_known_is_one_problem() -> None:
    stage = {"name": "say", "component": "llm", "stream": True, "with": {"prompt": "Hi"}}
    staged = {"stages": [stage], "reply": {"text": "say.completion"}}
    for more in ({"slo": {"ttft": "1s", "tpot": "50ms"}}, staged):
        document = {
            "apiVersion": "flowmesh.dev/v1alpha1",
            "kind": "FlowMeshService",
            "metadata": {"name": "ask", "namespace": "team-a"},
            "spec": {
                "inputs": {"base": {"model": "smollm2-135m-instruct"}},
                "components": {"llm": {"uses": "llm.generat", "inputs": {"model": "inputs.base"}}},
                **more,
            },
        }
        with pytest.raises(SpecError) as raised:
            compile_service(FlowMeshService.model_validate(document), CATALOG, None, stage_problems)
        assert [p.path for p in raised.value.problems] == ["spec.components.llm.uses"]
