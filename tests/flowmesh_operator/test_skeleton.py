"""From ``kubectl apply`` to a status, with a real API server, operator and worker."""

import json
import time
from collections.abc import Iterator

import pytest
from tests.flowmesh_operator.api_server import ApiServer, until
from tests.flowmesh_operator.replicas import Objects, Replicas, noop, replicas

from flowmesh_control.plugins import load_catalog
from flowmesh_core.errors import SpecError
from flowmesh_core.graph.compile import compile_workflow
from flowmesh_core.spec.load import load_objects

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def fabric(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    with replicas(api_server, tmp_path_factory.mktemp("skeleton")) as made:
        made.operator("a")
        made.worker("w")
        until(lambda: made.leads("a"), "a leads", 30)
        yield made


@pytest.fixture
def objects(fabric: Replicas, namespace: str) -> Objects:
    return Objects(fabric.server, namespace)


def test_an_applied_workflow_runs_and_can_be_waited_for(objects: Objects) -> None:
    objects.apply(objects.workflow("one", noop("a"), noop("b")))
    objects.wait("one")
    status = objects.status("one")
    assert status["phase"] == "Succeeded"
    assert status["progress"] == "2/2"
    assert status["observedGeneration"] == 1
    assert objects.condition("one", "Accepted")["status"] == "True"


def test_a_workflow_that_cannot_run_is_refused_within_a_second_with_the_words_of_validate(
    objects: Objects,
) -> None:
    broken = objects.workflow("broken", noop("a", inputs={"after": "b.metrics"}))
    began = time.monotonic()
    objects.apply(broken)
    objects.until("broken", within_s=5, phase="Failed")
    took_s = time.monotonic() - began
    with pytest.raises(SpecError) as validated:
        compile_workflow(load_objects(json.dumps(broken))[0], load_catalog(), validate_only=True)
    refused = objects.condition("broken", "Accepted")
    assert (refused["status"], refused["reason"]) == ("False", "Invalid")
    assert refused["message"] == str(validated.value)
    assert "no step 'b'" in refused["message"]
    assert took_s < 2.0  # kubectl's own time, twice, in it
