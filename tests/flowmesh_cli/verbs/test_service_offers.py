"""What ``fmesh serve`` prints of its services."""

from flowmesh_api.v1.services import ServiceCondition, ServiceReplicas, ServiceStatus
from flowmesh_cli.verbs.serve import waits_for
from flowmesh_cli.verbs.service_offers import ServeOptions, offers_of


def test_the_example_of_a_model_has_a_bounded_answer() -> None:
    [offer] = offers_of(ServeOptions(("smollm2-135m-instruct",)))
    assert offer.example["max_tokens"] == 64


def test_what_a_service_waits_for_is_said_once() -> None:
    replicas = ServiceReplicas("llm", 0, 1, ("w1",), "w1: loading")
    condition = ServiceCondition("Ready", "False", "ReplicasMissing", "llm: w1: loading")
    status = ServiceStatus(
        "ask", "team-b", "ask", "Loading", 1, 0.0, "r1", (replicas,), (condition,)
    )
    assert waits_for(status) == "llm: w1: loading"
