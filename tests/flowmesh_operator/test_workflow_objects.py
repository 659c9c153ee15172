"""From ``kubectl apply`` to a status, with a real API server, operator and worker."""

import asyncio
import json
import re
from collections.abc import Iterator

import msgspec
import pytest
from tests.flowmesh_operator.api_server import ApiServer, until
from tests.flowmesh_operator.replicas import Objects, Replicas, connected, noop, replicas, sleep

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.queries.status_document import document_artifact
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.errors import SpecError
from flowmesh_core.graph.compile import compile_workflow
from flowmesh_core.spec.load import load_text
from flowmesh_core.spec.workflow import FlowMeshWorkflow
from flowmesh_operator.kube.kinds import WORKFLOWS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def fabric(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    with replicas(api_server, tmp_path_factory.mktemp("skeleton")) as made:
        made.operator("a")
        made.worker("local-w")
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


def test_a_workflow_that_cannot_run_is_refused_with_the_message_of_validate(
    objects: Objects,
) -> None:
    broken = objects.workflow("broken", noop("a", inputs={"after": "b.metrics"}))
    objects.apply(broken)
    objects.until("broken", phase="Failed")
    (loaded,), _ = load_text(json.dumps(broken))
    workflow = loaded.object
    assert isinstance(workflow, FlowMeshWorkflow)
    with pytest.raises(SpecError) as validated:
        compile_workflow(workflow, load_catalog(), validate_only=True)
    refused = objects.condition("broken", "Accepted")
    assert (refused["status"], refused["reason"]) == ("False", "Invalid")
    assert refused["message"] == str(validated.value)
    assert "no step 'b'" in refused["message"]


def test_an_unmeetable_budget_is_refused_with_the_figures_until_it_is_raised(
    objects: Objects,
) -> None:
    poor = objects.workflow("poor", sleep("a", 0.1), budgetUsd="0.000000001")
    objects.apply(poor)
    objects.until("poor", phase="Failed")
    refused = objects.condition("poor", "Accepted")
    assert (refused["status"], refused["reason"]) == ("False", "Unmeetable")
    figures = (
        r"spec.budgetUsd: expected to cost at least \$0\.\d+, and the budget is \$0\.000000001"
    )
    assert re.match(figures, refused["message"])
    poor["spec"]["budgetUsd"] = "1"
    objects.apply(poor)
    objects.wait("poor")
    assert objects.condition("poor", "Accepted")["status"] == "True"


def test_a_workflow_with_parameters_runs_is_amended_and_refused_with_the_messages_of_validate(
    objects: Objects,
) -> None:
    rows = [{"id": "1"}, {"id": "2"}]
    step = {
        "name": "a",
        "uses": "test.map",
        "inputs": {"rows": "inputs.d"},
        "matrix": {"n": "${params.ns}"},
        "retry": {"attempts": "${params.attempts}"},
        "timeout": "${params.minutes}m",
    }
    spec = {
        "inputs": {"d": {"rows": "${params.rows}"}},
        "params": {
            "rows": {"type": "list", "items": "object", "default": rows},
            "ns": {"type": "list", "items": "integer", "default": [1, 2]},
            "attempts": 2,
            "minutes": 5,
            "budget": {"type": "string", "default": "1"},
        },
        "budgetUsd": "${params.budget}",
        "outputs": {"rows": "a[*].rows"},
    }
    filled = objects.workflow("filled", step, **spec, suspend=True)
    objects.apply(filled)
    objects.until("filled", phase="Suspended")
    filled["spec"] |= {"suspend": False, "priority": 5}
    objects.apply(filled)
    objects.wait("filled")
    status = objects.status("filled")
    assert (status["progress"], status["observedGeneration"]) == ("2/2", 2)
    assert status["outputs"]["rows"]["rows"] == 4

    wrong = {**spec["params"], "attempts": 21, "budget": {"type": "string", "required": True}}
    refused = objects.workflow("refused", step, **{**spec, "params": wrong})
    objects.apply(refused)
    objects.until("refused", phase="Failed")
    condition = objects.condition("refused", "Accepted")
    assert (condition["status"], condition["reason"]) == ("False", "Invalid")
    assert condition["message"].splitlines() == [
        "spec.params.budget: params.budget is required: write a value, or a default here",
        "spec.steps[0].retry.attempts: expected at most 20, got the number 21 (from"
        " ${params.attempts})",
    ]


def test_a_change_of_a_mutable_field_changes_the_run(objects: Objects) -> None:
    held = objects.workflow("held", noop("a"), suspend=True)
    objects.apply(held)
    objects.until("held", phase="Suspended")
    assert objects.condition("held", "Running")["reason"] == "Suspended"
    held["spec"]["suspend"] = False
    objects.apply(held)
    objects.wait("held")
    assert objects.status("held")["observedGeneration"] == 2


def test_a_deleted_workflow_is_cancelled_and_an_expired_one_deleted(
    fabric: Replicas, objects: Objects
) -> None:
    objects.apply(
        objects.workflow("gone", sleep("a", 60)),
        objects.workflow("short", noop("a"), ttlSecondsAfterFinished=1),
    )
    objects.until("gone", phase="Running", counts=objects.counts(running=1))
    uid = objects.uid("gone")
    objects.server.kubectl("delete", "fmw", "gone", "-n", objects.namespace)
    until(lambda: fabric.phase(uid) == "Cancelled", "the run is cancelled", 20)
    until(lambda: not objects.exists("short"), "the expired object is deleted", 20)


def test_rows_are_read_from_a_config_map_that_may_be_created_later(objects: Objects) -> None:
    steps = [{"name": "a", "uses": "test.map", "inputs": {"rows": "inputs.d"}}]
    source = {"d": {"configMap": {"name": "rows", "key": "rows.jsonl"}}}
    objects.apply(objects.workflow("mapped", *steps, inputs=source, outputs={"rows": "a.rows"}))
    objects.until("mapped", phase="Pending")
    refused = objects.condition("mapped", "Accepted")
    assert refused["reason"] == "Unreadable"
    assert f"kubectl create configmap rows -n {objects.namespace}" in refused["message"]
    rows = "rows.jsonl=" + '{"id": "1"}\n{"id": "2"}\n'
    objects.server.kubectl(
        "create", "configmap", "rows", "-n", objects.namespace, f"--from-literal={rows}"
    )
    objects.wait("mapped")
    assert objects.status("mapped")["outputs"]["rows"]["rows"] == 2


def test_a_spec_of_almost_a_mebibyte_runs(objects: Objects) -> None:
    objects.apply(objects.workflow("large", noop("a"), params={"padding": "x" * 1_000_000}))
    objects.wait("large")


def test_only_kubectl_and_the_status_writer_write_to_an_object(
    objects: Objects,
) -> None:
    objects.apply(objects.workflow("plain", noop("a")))
    objects.wait("plain")
    meta = objects.server.get("fmw", "plain", "-n", objects.namespace, "--show-managed-fields")
    fields = meta["metadata"]["managedFields"]
    assert {(f["manager"], f.get("subresource", "")) for f in fields} == {
        ("kubectl", ""), ("flowmesh", "status")
    }  # fmt: skip
    assert not meta["metadata"].get("annotations")
    assert not meta["metadata"].get("finalizers")


async def test_a_hundred_concurrent_workflows_cost_few_writes_each_and_none_after_their_end(
    objects: Objects,
) -> None:
    many = 100
    before = objects.written()
    documents = [objects.workflow(f"w{i}", noop("a")) for i in range(many)]
    async with connected(objects.server) as api:
        create = (*WORKFLOWS, objects.namespace)
        await asyncio.gather(*(api.create(*create, document) for document in documents))
    until(lambda: objects.events("Succeeded") == many, "an event of each end", 60)
    after = objects.written()
    statuses, others = (after[i] - before[i] for i in range(2))
    assert 0 < statuses <= 4 * many
    assert 0 < others - many <= 3 * many  # less those of the test
    objects.settle()
    idle = objects.written()
    objects.settle()
    assert objects.written() == idle
    assert {w["status"]["phase"] for w in objects.all()} == {"Succeeded"}
    objects.delete_all()


def test_a_run_with_many_steps_has_a_retained_document_with_all_of_them(
    fabric: Replicas, objects: Objects
) -> None:
    many = 120
    step = noop("a", matrix={"i": list(range(many))})
    step["with"] = {"value": step["with"]["value"] + "-${matrix.i}"}
    objects.apply(objects.workflow("wide", step))
    objects.wait("wide")
    status = objects.status("wide")
    assert (status["progress"], len(status["steps"])) == (f"{many}/{many}", 100)
    digest = status["stepsRef"].removeprefix("cas:blob:").partition(".")[0]
    whole = msgspec.json.decode(fabric.blob(digest, objects.namespace), type=RunStatus)
    assert len(whole.steps) == many
    assert document_artifact(fabric.final(objects.uid("wide")).status).blob == digest
