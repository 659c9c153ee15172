"""Services that use what a workflow has published: the newest run's output, in their namespace."""

import json
from typing import Any

import msgspec
import orjson
import pytest
from tests.attacks.by_hand import HandWorker, Place, end_of, place, until
from tests.attacks.stored_services import with_hub
from tests.flowmesh_control.derived_work import ask, submit, upload

from flowmesh_api.v1.services import ServiceStatus
from flowmesh_core.catalog.builtin.code import COMPONENT
from flowmesh_core.catalog.builtin.retrieve import TOPK
from flowmesh_core.protocol.messages import EngineVersion, ServingReplica

pytestmark = pytest.mark.slow

CODE = "def compute(batch):\n    return [{'embedding': [1.0]} for _ in batch]\n"
ENGINES = {c.name: c.versions for c in (COMPONENT, TOPK)} | {"test.noop": EngineVersion(1, 1)}


def service(namespace: str = "team-a", **output: Any) -> dict[str, Any]:
    """Returns a service that searches the output ``vectors`` of the workflow ``index``."""
    search = {"uses": "retrieve.topk", "inputs": {"corpus": "inputs.vectors"}}
    spec = {
        "inputs": {"vectors": {"output": "index/vectors", **output}},
        "components": {"embed": {"python": {"code": CODE}}, "search": search},
        "stages": [
            {"name": "query", "component": "embed"},
            {"name": "hits", "component": "search", "inputs": {"rows": "query"}},
        ],
        "reply": {"found": "hits.found"},
    }
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": "ask", "namespace": namespace},
        "spec": spec,
    }


async def publish(there: Place, worker: HandWorker, number: int) -> dict[str, Any]:
    """Runs the workflow ``index`` to its end; returns the rows that it publishes."""
    rows = json.dumps({"text": "a", "embedding": [float(number)]}).encode() + b"\n"
    stored = await upload(there, rows)
    spec = {
        "inputs": {"rows": {"dataset": stored["reference"]}},
        "steps": [{"name": "wait", "uses": "test.noop"}],
        "outputs": {"vectors": "inputs.rows"},
    }
    known = set(worker.assigned)
    uid = await submit(there, "index", spec)
    if not known:  # later runs find the result of the first one's step
        (attempt,) = await worker.given()
        end = end_of(attempt.attempt_id, attempt.action_id, token=attempt.token)
        await worker.sync(ended=(end,))
    assert (await there.ended(uid)).phase == "Succeeded"
    return stored


async def applied(there: Place, document: dict[str, Any], status: int = 200) -> bytes:
    found, body = await ask(there, "POST", "/v1/services", json={"document": document})
    assert found == status, body
    return body


def searches(worker: HandWorker) -> list[ServingReplica]:
    """Returns the replicas of the search that the worker has been given."""
    return [one for one in worker.replicas or () if one.component == "search"]


def corpora(worker: HandWorker) -> set[str]:
    return {one.opening.components["corpus"].digest for one in searches(worker)}


async def test_a_service_loads_what_the_newest_run_has_published() -> None:
    async with place() as there:
        worker = await with_hub(there, "w", engines=ENGINES, variants=())
        refused = orjson.loads(await applied(there, service(), 422))
        assert "has published 'vectors'" in str(refused)
        first = await publish(there, worker, 1)
        await applied(there, service())
        await until(lambda: corpora(worker) == {first["digest"]})
        (one,) = searches(worker)
        assert one.opening.components["corpus"].manifest is None, "a worker reads it from the store"
        second = await publish(there, worker, 2)
        before = msgspec.json.decode(await applied(there, service()), type=ServiceStatus)
        assert before.generation == 2, "applying again takes the newest output"
        await until(lambda: corpora(worker) == {second["digest"]})


async def test_a_newer_publication_is_a_new_release_of_a_service_that_follows_it() -> None:
    async with place() as there:
        worker = await with_hub(there, "w", engines=ENGINES, variants=())
        first = await publish(there, worker, 1)
        await applied(there, service(follow=True))
        await until(lambda: corpora(worker) == {first["digest"]})
        (old,) = searches(worker)
        second = await publish(there, worker, 2)
        await until(lambda: corpora(worker) == {second["digest"]})
        (new,) = searches(worker)
        assert new.release != old.release


async def test_an_output_is_kept_where_the_service_does_not_follow_it() -> None:
    async with place() as there:
        worker = await with_hub(there, "w", engines=ENGINES, variants=())
        first = await publish(there, worker, 1)
        await applied(there, service())
        await until(lambda: corpora(worker) == {first["digest"]})
        await publish(there, worker, 2)
        registry = there.control.services.registry
        await registry.follow()
        assert registry.get("team-a", "ask").generation == 1
