"""Services in a leading control plane: applied, imported, planned, and alive after a restart.

The worker speaks the protocol by hand, so that a test decides when a replica is ready.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.attacks.by_hand import HandWorker, Place, end_of, place, until
from tests.blob_views import blobs_of
from tests.flowmesh_control.fabric import API_TOKEN, machine_of

from flowmesh_api.v1.services import ServiceList, ServiceReasons, ServiceStatus
from flowmesh_control.serving import replica_planner
from flowmesh_core.catalog.builtin.code import COMPONENT as CODE
from flowmesh_core.catalog.builtin.importing import MODEL
from flowmesh_core.catalog.builtin.llm import GENERATE
from flowmesh_core.identity import tree_identity
from flowmesh_core.protocol.messages import (
    EngineVariant,
    EngineVersion,
    FailureReport,
    ServingReplica,
    ServingReplicaState,
)
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.protocol.router_services import RouterServices
from flowmesh_store.tree import store_tree
from flowmesh_worker.agent import connection

pytestmark = pytest.mark.slow

ENGINES = {c.name: c.versions for c in (MODEL, GENERATE)} | {"test.noop": EngineVersion(1, 1)}
VARIANTS = (EngineVariant("llm.generate", "vllm", ("auto", "float32")),)
BEATING: set[asyncio.Task[None]] = set()


def service(name: str = "ask", **spec: Any) -> dict[str, Any]:
    found = {
        "inputs": {"base": {"model": "smollm2-135m-instruct"}},
        "components": {"llm": {"uses": "llm.generate", "inputs": {"model": "inputs.base"}}},
        **spec,
    }
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": found,
    }


class Api:
    """The API of a place, by its routes."""

    def __init__(self, found: Place) -> None:
        self._place = found

    async def call(self, method: str, path: str, body: Any = None, status: int = 200) -> bytes:
        url, headers = self._place.control.url + path, {"Authorization": f"Bearer {API_TOKEN}"}
        async with self._place.http.request(method, url, json=body, headers=headers) as response:
            content = await response.read()
            assert response.status == status, content
            return content

    async def apply(self, document: dict[str, Any]) -> ServiceStatus:
        data = await self.call("POST", "/v1/services", {"document": document})
        return msgspec.json.decode(data, type=ServiceStatus)

    async def status(self, name: str = "ask") -> ServiceStatus:
        data = await self.call("GET", f"/v1/services/{name}?namespace=team-a")
        return msgspec.json.decode(data, type=ServiceStatus)

    async def until(
        self, condition: Callable[[ServiceStatus], bool], name: str = "ask"
    ) -> ServiceStatus:
        async with asyncio.timeout(60):
            found = await self.status(name)
            while not condition(found):
                found = await self.status(name)
        return found


async def join(found: Place, *states: ServingReplicaState) -> HandWorker:
    """A worker that has a hub; its heartbeats go on until its connection ends."""
    shape = {"engines": ENGINES, "variants": VARIANTS, "device_memory_mib": 4096}
    worker = await found.join("w", shape=shape, replicas=states)
    BEATING.add(asyncio.create_task(_beat(worker)))
    return worker


async def _beat(worker: HandWorker) -> None:
    while not worker.closed:
        with contextlib.suppress(ConnectionResetError):
            await worker.sync()
        await asyncio.sleep(1.0)  # as a worker's interval


async def model_of(found: Place, folder: Path) -> Artifact:
    """A model in the store, as an import leaves it."""
    tree = await store_tree(blobs_of(found.store), folder)
    return Artifact("model", tree_identity("model", tree.files), tree.digest, tree.size_bytes)


async def imported(found: Place, worker: HandWorker, folder: Path) -> Artifact:
    """The worker has imported the model."""
    (attempt,) = await worker.given()
    assert attempt.engine == "model.import"
    model = await model_of(found, folder)
    made = {"outputs": {"model": model}, "inline": {}, "token": attempt.token}
    await worker.sync(ended=(end_of(attempt.attempt_id, attempt.action_id, **made),))
    return model


def state_of(one: ServingReplica, state: str = "ready", **changes: Any) -> ServingReplicaState:
    opening = one.opening
    values = {
        "signature": opening.signature,
        "memory_mib": opening.memory_mib,
        "token": opening.token,
        **changes,
    }
    return ServingReplicaState(one.replica_id, state, **values)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's directory."""
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


@pytest.fixture
async def found() -> AsyncIterator[Place]:
    async with place() as made:
        yield made


async def serving(found: Place, folder: Path) -> tuple[Api, HandWorker, ServingReplica]:
    """A service whose only replica is ready."""
    api, worker = Api(found), await join(found)
    await api.apply(service())
    await imported(found, worker, folder)
    await until(lambda: worker.replicas)
    assert worker.replicas is not None
    (one,) = worker.replicas
    await worker.sync(replicas=(state_of(one),))
    await api.until(lambda s: s.phase == "Ready")
    return api, worker, one


async def test_a_service_is_imported_placed_and_ready(found: Place, folder: Path) -> None:
    api, worker = Api(found), await join(found)
    status = await api.apply(service(openai={"model": "smol"}))
    assert (status.phase, status.model, status.generation) == ("Pending", "smol", 1)
    model = await imported(found, worker, folder)
    await until(lambda: worker.replicas)
    (one,) = worker.replicas or ()
    assert (one.service, one.component) == ("team-a/ask", "llm")
    assert one.opening.components == {"model": model}
    assert one.opening.read_scopes == ("ns-team-a",)
    assert one.opening.token, "the blob service is shown a token for the model"
    assert one.opening.memory_mib == GENERATE.base_memory_mib
    assert set(one.salts) == {"team-a"}
    status = await api.until(lambda s: s.phase == "Loading")
    assert status.release == one.release
    await worker.sync(replicas=(state_of(one, "loading"),))
    await api.until(lambda s: "loading" in s.replicas[0].reason)
    await worker.sync(replicas=(state_of(one, "failed", code_failures=2),))
    await api.until(lambda s: s.replicas[0].code_failures == 2)
    await worker.sync(replicas=(state_of(one),))
    status = await api.until(lambda s: s.phase == "Ready")
    (replicas,) = status.replicas
    assert replicas.code_failures == 0
    assert (replicas.ready, replicas.wanted, replicas.workers) == (1, 1, ("good-w",))
    assert replicas.placed == {one.replica_id: "good-w"}, "what a router believes its hub about"
    assert {c.type: c.status for c in status.conditions} == {"Accepted": "True", "Ready": "True"}


async def test_a_deleted_service_closes_its_replicas_and_its_name_is_free(
    found: Place, folder: Path
) -> None:
    api, worker, _ = await serving(found, folder)
    await api.call("DELETE", "/v1/services/ask?namespace=team-a")
    await until(lambda: worker.replicas == ())
    await worker.sync(replicas=())
    await api.call("GET", "/v1/services/ask?namespace=team-a", status=404)
    await api.call("DELETE", "/v1/services/ask?namespace=team-a", status=404)
    again = await api.apply(service())
    assert again.generation == 1


async def test_a_service_survives_a_restart_of_the_leader_and_its_replica_stays(
    found: Place, folder: Path
) -> None:
    _, worker, one = await serving(found, folder)
    await worker.close()
    await found.lead_anew()
    api, worker = Api(found), await join(found, state_of(one))
    await until(lambda: worker.replicas)
    assert [r.replica_id for r in worker.replicas or ()] == [one.replica_id]
    status = await api.until(lambda s: s.phase == "Ready")
    assert status.release == one.release
    assert worker.assigned == {}, "the model is not imported again"


async def test_routers_get_no_placement_before_a_new_leader_knows_its_workers(
    found: Place, folder: Path
) -> None:
    """They go on with that of the last leader: an empty one would end the service."""
    _, worker, one = await serving(found, folder)
    await worker.close()
    await found.lead_anew()
    api = Api(found)
    answer = await api.call("GET", "/v1/router", status=503)
    assert b"has not planned the replicas" in answer
    await join(found, state_of(one))
    planner = found.control.services.replica_planner
    await until(lambda: planner.plan.workers)
    await until(lambda: planner._is_planned)
    listed = msgspec.json.decode(await api.call("GET", "/v1/router"), type=RouterServices)
    assert [s.placed for s in listed.services] == [{one.replica_id: "good-w"}]
    assert (listed.epoch, listed.version) == (2, 1)


def test_workers_have_the_time_to_connect_again_before_replicas_are_planned() -> None:
    assert replica_planner.RECONNECT_S > connection.BACKOFF_MAX_S


async def test_while_the_store_is_away_services_go_on_and_new_ones_wait(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = tmp_path_factory.mktemp("fabric") / "store"
    async with place(store_url=str(store)) as found:
        api, worker, one = await serving(found, folder)
        await until(lambda: found.control.services.replica_planner._is_planned)
        before = await api.call("GET", "/v1/router")
        (store / "services").rename(store / "services-away")
        (store / "services").symlink_to(store / "services")  # nothing below it can be read
        await api.call("POST", "/v1/services", {"document": service("new")}, status=503)
        await found.control.services.replica_planner.update()
        assert await api.call("GET", "/v1/router") == before
        assert [r.replica_id for r in worker.replicas or ()] == [one.replica_id]
        assert (await api.status()).phase == "Ready"
        (store / "services").unlink()
        (store / "services-away").rename(store / "services")
        assert (await api.apply(service("new"))).phase == "Pending"


async def test_a_service_that_was_deleted_while_no_worker_was_there_leaves_the_worker_later(
    found: Place, folder: Path
) -> None:
    api, worker, one = await serving(found, folder)
    await worker.close()
    await api.call("DELETE", "/v1/services/ask?namespace=team-a")
    await found.lead_anew()
    worker = await join(found, state_of(one))
    await until(lambda: worker.replicas == ())


async def test_another_content_is_a_new_release_and_the_old_one_serves_until_then(
    found: Place, folder: Path
) -> None:
    api, worker, one = await serving(found, folder)
    with_dtype = {
        "llm": {
            "uses": "llm.generate",
            "inputs": {"model": "inputs.base"},
            "with": {"dtype": "float32"},
            "resources": {"memory": "1Gi"},
        }
    }
    assert (await api.apply(service())).generation == 1, "the same content"
    status = await api.apply(service(components=with_dtype))
    assert (status.generation, status.release) == (2, one.release)
    await until(lambda: [r.release for r in worker.replicas or ()] != [one.release])
    (new,) = worker.replicas or ()
    assert new.opening.signature_params["dtype"] == "float32"
    assert new.opening.memory_mib == 1024


async def test_batch_work_is_not_placed_on_the_memory_of_a_replica(
    found: Place, folder: Path
) -> None:
    _, worker, one = await serving(found, folder)
    free_mib = 4096 - one.opening.memory_mib
    step = {"name": "s", "uses": "test.noop", "resources": {"memory": f"{free_mib + 1}Mi"}}
    spec: dict[str, Any] = {"steps": [{**step, "with": {"value": 1}}]}
    before = set(worker.assigned)
    await found.submit("large", spec)
    spec["steps"][0]["resources"] = {"memory": f"{free_mib}Mi"}
    await found.submit("fits", spec)
    await until(lambda: set(worker.assigned) != before)
    (attempt_id,) = set(worker.assigned) - before
    assert worker.assigned[attempt_id].memory_mib == free_mib


async def test_a_replica_that_does_not_load_shows_the_engines_words_until_it_is_ready(
    found: Place, folder: Path
) -> None:
    api, worker, one = await serving(found, folder)
    await worker.sync(replicas=(state_of(one, "failed", reason="no such dtype"),))
    status = await api.until(lambda s: s.phase == "Loading")
    ready = status.conditions[-1]
    assert (ready.type, ready.status, ready.reason) == ("Ready", "False", "ReplicasMissing")
    assert "good-w: failed: no such dtype" in ready.message
    assert worker.replicas, "it stays on the worker, which loads it again"
    await worker.sync(replicas=(state_of(one),))
    await api.until(lambda s: s.phase == "Ready")


async def test_a_service_below_its_least_number_is_degraded_and_ready_while_it_answers(
    found: Place, folder: Path
) -> None:
    """Who waits for Ready wants answers; the phase and the reason say that replicas are missing."""
    api, worker = Api(found), await join(found)
    llm = {
        "uses": "llm.generate",
        "inputs": {"model": "inputs.base"},
        "replicas": {"min": 2, "max": 2},
    }
    await api.apply(service(components={"llm": llm}))
    await imported(found, worker, folder)
    await until(lambda: worker.replicas)
    (one,) = worker.replicas or ()
    await worker.sync(replicas=(state_of(one),))
    status = await api.until(lambda s: s.phase == "Degraded")
    ready = status.conditions[-1]
    assert (ready.type, ready.status, ready.reason) == ("Ready", "True", "ReplicasMissing")
    assert (status.replicas[0].ready, status.replicas[0].wanted) == (1, 2)
    await worker.sync(replicas=(state_of(one, "failed", reason="no memory"),))
    status = await api.until(lambda s: s.phase == "Loading")
    assert status.conditions[-1].status == "False"


async def test_a_service_is_ready_once_a_worker_has_an_affinity_group_as_a_whole(
    found: Place,
) -> None:
    """Until then requests of both components are answered by none."""
    api = Api(found)
    code = {"python": {"code": "def compute(batch):\n    return batch"}, "affinity": "pair"}
    stages = [
        {"name": "made", "component": "one", "inputs": {"x": "request.x"}},
        {"name": "used", "component": "two", "inputs": {"x": "made"}},
    ]
    engines = ENGINES | {CODE.name: CODE.versions}
    shape = {"engines": engines, "device_memory_mib": 4096, "allows_user_code": True}
    worker = await found.join("w", shape={**shape, "sandbox": "landlock"}, replicas=())
    BEATING.add(asyncio.create_task(_beat(worker)))
    components = {"one": code, "two": code}
    await api.apply(service(inputs={}, components=components, stages=stages, reply={"y": "used"}))
    await until(lambda: worker.replicas)
    one, two = worker.replicas or ()
    await worker.sync(replicas=(state_of(one), state_of(two, "loading")))
    status = await api.until(lambda s: "affinity" in "".join(r.reason for r in s.replicas))
    assert [(r.component, r.ready) for r in status.replicas] == [("one", 0), ("two", 0)]
    assert status.replicas[0].reason == "good-w: waits for two, by affinity 'pair'"
    assert status.phase == "Loading"
    assert status.conditions[-1].message == (
        "one: good-w: waits for two, by affinity 'pair'; two: good-w: loading"
    )
    await worker.sync(replicas=(state_of(one), state_of(two)))
    status = await api.until(lambda s: s.phase == "Ready")
    assert [r.ready for r in status.replicas] == [1, 1]


async def test_the_service_pays_for_its_replica(found: Place, folder: Path) -> None:
    api, _, _ = await serving(found, folder)
    await api.until(lambda s: s.paid_nanousd > 0)
    book = machine_of(found.control).state.book
    assert book.services_nanousd > 0
    assert book.unsettled_nanousd == 0


async def test_a_service_does_not_show_what_an_earlier_one_of_its_name_has_cost(
    found: Place, folder: Path
) -> None:
    api, worker, _ = await serving(found, folder)
    await api.until(lambda s: s.paid_nanousd > 0)
    await api.apply(service(openai={"model": "smol"}))
    assert (await api.status()).paid_nanousd > 0, "another content is the same service"
    await api.call("DELETE", "/v1/services/ask?namespace=team-a")
    await until(lambda: worker.replicas == ())
    await worker.sync(replicas=())
    spent = machine_of(found.control).state.service_spend
    await until(lambda: not machine_of(found.control).state.workers["good-w"].services)
    earlier = spent["team-a/ask"]
    assert (await api.apply(service())).paid_nanousd == 0
    await found.lead_anew()
    assert (await api.status()).paid_nanousd == 0
    assert machine_of(found.control).state.service_spend["team-a/ask"] == earlier


async def test_a_service_without_a_worker_that_can_hold_it_says_why(
    found: Place, folder: Path
) -> None:
    api = Api(found)
    worker = await found.join("w", shape={"engines": ENGINES, "variants": VARIANTS})
    await api.apply(service())
    await imported(found, worker, folder)
    status = await api.until(lambda s: bool(s.replicas and s.replicas[0].reason))
    assert "none has a hub" in status.replicas[0].reason
    assert status.conditions[-1].reason == "ReplicasMissing"


async def test_a_model_that_cannot_be_imported_fails_the_service_and_applying_tries_again(
    found: Place,
) -> None:
    api, worker = Api(found), await join(found)
    await api.apply(service())
    (attempt,) = await worker.given()
    failure = FailureReport("bad-input", "it is not a model")
    refused = {"outputs": {}, "inline": {}, "failure": failure, "token": attempt.token}
    await worker.sync(ended=(end_of(attempt.attempt_id, attempt.action_id, **refused),))
    status = await api.until(lambda s: s.phase == "Failed")
    assert "it is not a model" in status.conditions[-1].message
    await api.apply(service())
    assert len(await worker.given(2)) == 2


async def test_every_problem_of_a_service_is_named(found: Place) -> None:
    wrong = service(
        components={
            "llm": {
                "uses": "llm.generate",
                "inputs": {"modell": "inputs.base", "model": "inputs.bas"},
                "with": {"temperature": 1, "dtype": "float12"},
            }
        }
    )
    answer = await Api(found).call("POST", "/v1/services", {"document": wrong}, status=422)
    paths = {p["path"] for p in msgspec.json.decode(answer)["error"]["problems"]}
    assert paths == {
        "spec.components.llm.inputs.modell",
        "spec.components.llm.inputs.model",
        "spec.components.llm.with.temperature",
        "spec.components.llm.with.dtype",
    }


async def test_services_are_listed_by_namespace(found: Place) -> None:
    api = Api(found)
    await api.apply(service("b"))
    await api.apply(service("a"))
    for namespace, names in (("team-a", ["a", "b"]), ("team-b", [])):
        data = await api.call("GET", f"/v1/services?namespace={namespace}")
        listed = msgspec.json.decode(data, type=ServiceList)
        assert [s.name for s in listed.services] == names


async def test_services_of_all_namespaces_are_listed_by_name(found: Place) -> None:
    api = Api(found)
    for name, namespace in (("b", "team-b"), ("a", "team-b"), ("b", "team-a")):
        document = service(name)
        document["metadata"]["namespace"] = namespace
        await api.apply(document)
    data = await api.call("GET", "/v1/services?all_namespaces=1")
    listed = msgspec.json.decode(data, type=ServiceList)
    assert [(s.name, s.namespace) for s in listed.services] == [
        ("a", "team-b"),
        ("b", "team-a"),
        ("b", "team-b"),
    ]


async def test_every_replica_has_a_reason(found: Place, folder: Path) -> None:
    api, _, one = await serving(found, folder)
    path = "/v1/services/ask/why?namespace=team-a"
    reasons = msgspec.json.decode(await api.call("GET", path), type=ServiceReasons)
    (component,) = reasons.components
    assert (component.wanted, component.least, component.most) == (1, 1, 1)
    (placed,) = component.replicas
    assert placed.verdict in ("placed", "stays"), "until the next plan, and from then on"
    assert (placed.worker, placed.replica) == ("good-w", one.replica_id)
    await api.call("GET", "/v1/services/other/why?namespace=team-a", status=404)


async def test_a_changed_target_of_tokens_reaches_the_replica_that_runs(
    found: Place, folder: Path
) -> None:
    api, worker, one = await serving(found, folder)
    assert (one.ttft_s, one.tpot_s) == (0.0, 0.0)
    await api.apply(service(slo={"ttft": "1500ms", "tpot": "50ms"}))
    await until(lambda: worker.replicas and worker.replicas[0].tpot_s)
    (changed,) = worker.replicas or ()
    assert (changed.replica_id, changed.ttft_s, changed.tpot_s) == (one.replica_id, 1.5, 0.05)
    shown = await api.status()
    assert (shown.requests.ttft_s, shown.requests.tpot_s) == (1.5, 0.05)
    assert [c.status for c in shown.conditions if c.type == "MeetsSlo"] == ["Unknown"]


async def test_a_replica_on_a_new_worker_begins_with_what_the_lost_one_has_learned(
    found: Place, folder: Path
) -> None:
    _, worker, one = await serving(found, folder)
    await worker.sync(replicas=(state_of(one, "failed", halvings=2),))
    await until(lambda: worker.replicas and worker.replicas[0].halvings == 2)
    await worker.close()
    again = await join(found)  # the same worker has started anew
    await until(lambda: again.replicas)
    assert [r.halvings for r in again.replicas or ()] == [2]


async def test_a_busy_service_wants_more_replicas_up_to_its_most(
    found: Place, folder: Path
) -> None:
    api, worker = Api(found), await join(found)
    replicas = {"min": 1, "max": 2}
    llm = {"uses": "llm.generate", "inputs": {"model": "inputs.base"}, "replicas": replicas}
    await api.apply(service(components={"llm": {**llm, "callsMax": 4}}))
    await imported(found, worker, folder)
    await until(lambda: worker.replicas)
    (one,) = worker.replicas or ()
    planner, now_s = found.control.services.replica_planner, time.time()
    for turn in range(3):
        await worker.sync(replicas=(state_of(one, calls=4, units=1 + 100 * turn),))
        await until(lambda turn=turn: _units(found) == 1 + 100 * turn)
        planner._clock = lambda turn=turn: now_s + 100.0 * turn  # type: ignore[misc]
        await planner.update()
    status = await api.status()
    assert (status.phase, status.replicas[0].ready, status.replicas[0].wanted) == ("Ready", 1, 2)
    assert "no worker has" in status.replicas[0].reason


def _units(found: Place) -> int:
    states = machine_of(found.control).state.workers["good-w"].replica_states
    return sum(s.units for s in states.values())
