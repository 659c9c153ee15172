"""What a service expects of its requests, as a document says it."""

from typing import Any

import pytest
from pydantic import ValidationError
from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_core.graph.service_plan import compile_service
from flowmesh_core.spec.error_messages import problems_of
from flowmesh_core.spec.service import FlowMeshService
from flowmesh_core.stages.expected_arrivals import ExpectedArrivals


def service(**spec: Any) -> dict[str, Any]:
    base = {
        "inputs": {"base": {"model": "smollm2-135m-instruct"}},
        "components": {"llm": {"uses": "llm.generate", "inputs": {"model": "inputs.base"}}},
    }
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": "ask", "namespace": "team-a"},
        "spec": {**base, **spec},
    }


def compiled(**spec: Any) -> ExpectedArrivals | None:
    document = FlowMeshService.model_validate(service(**spec))
    return compile_service(document, builtin_catalog()).arrivals


def test_expected_requests_are_compiled_with_their_defaults() -> None:
    given = {"ratePerSecond": 0.5, "cv": 2, "peakPerSecond": 2}
    assert compiled(arrivals=given) == ExpectedArrivals(0.5, 2.0, 2.0)
    assert compiled(arrivals={"ratePerSecond": 3}) == ExpectedArrivals(3.0, 1.0, 0.0)
    assert compiled() is None


@pytest.mark.parametrize(
    ("of", "field"), [("slo", "latency"), ("slo", "ttft"), ("slo", "tpot"), ("limits", "timeout")]
)
def test_a_time_limit_of_0_is_not_taken_for_none(of: str, field: str) -> None:
    with pytest.raises(ValidationError) as raised:
        FlowMeshService.model_validate(service(**{of: {field: "0s"}}))
    (problem,) = problems_of(raised.value, FlowMeshService)
    assert problem.path == f"spec.{of}.{field}"
    assert problem.message.startswith("0 is not a limit")


@pytest.mark.parametrize(
    ("arrivals", "path", "message"),
    [
        ({}, "spec.arrivals.ratePerSecond", "required"),
        ({"ratePerSecond": 0}, "spec.arrivals.ratePerSecond", "0.0001"),
        ({"ratePerSecond": "2"}, "spec.arrivals.ratePerSecond", "number"),
        ({"ratePerSecond": float("nan")}, "spec.arrivals.ratePerSecond", "100000"),
        ({"ratePerSecond": float("inf")}, "spec.arrivals.ratePerSecond", "100000"),
        ({"ratePerSecond": 1, "cv": -1}, "spec.arrivals.cv", "0"),
        ({"ratePerSecond": 1, "rate": 2}, "spec.arrivals.rate", "ratePerSecond"),
        (
            {"ratePerSecond": 2, "peakPerSecond": 1},
            "spec.arrivals",
            "peakPerSecond is 1: expected at least ratePerSecond, which is 2",
        ),
    ],
)
def test_an_error_of_expected_requests_names_the_field(
    arrivals: dict[str, Any], path: str, message: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        FlowMeshService.model_validate(service(arrivals=arrivals))
    (problem,) = problems_of(raised.value, FlowMeshService)
    assert problem.path == path
    assert message in problem.message
