"""Services with adapters: what their replicas load, and whose adapters they may have."""

import json
from typing import Any

import pytest
from tests.attacks.by_hand import HandWorker, place, until
from tests.attacks.stored_services import apply, model_of, service, with_hub
from tests.flowmesh_control.derived_work import ask, revoke, upload_model

from flowmesh_core.protocol.messages import ServingReplica

pytestmark = pytest.mark.slow


def adapted(model: str, name: str = "ask", **adapters: str) -> dict[str, Any]:
    """Returns a service with these adapters by name, each a reference."""
    found = service("team-a", model, name)
    found["spec"]["inputs"] |= {n: {"adapter": reference} for n, reference in adapters.items()}
    found["spec"]["components"]["llm"]["adapters"] = {n: f"inputs.{n}" for n in adapters}
    return found


def replicas(worker: HandWorker) -> dict[str, ServingReplica]:
    return {one.service: one for one in worker.replicas or ()}


async def test_adapters_are_loaded_beside_the_model_by_an_engine_of_their_own() -> None:
    async with place() as there:
        worker = await with_hub(there, "w")
        model = await model_of(there, "team-a")
        german = await upload_model(there, "team-a", b"germ", "adapter")
        french = await upload_model(there, "team-a", b"fren", "adapter")
        both = {"german": german["reference"], "french": french["reference"]}
        await apply(there, service("team-a", model, "plain"))
        await apply(there, adapted(model, "one", german=german["reference"]))
        await apply(there, adapted(model, "both", **both))
        await apply(there, adapted(model, "same", **both))
        await until(lambda: len(replicas(worker)) == 4)
        found = {name.partition("/")[2]: r.opening for name, r in replicas(worker).items()}
        assert set(found["plain"].components) == {"model"}
        assert set(found["one"].components) == {"model", "adapter/german"}
        assert {p: a.digest for p, a in found["both"].components.items()} == {
            "model": found["plain"].components["model"].digest,
            "adapter/german": german["digest"],
            "adapter/french": french["digest"],
        }
        assert found["both"].signature == found["same"].signature
        assert len({opening.signature for opening in found.values()}) == 3
        before = replicas(worker)["team-a/both"].release
        swapped = {"german": french["reference"], "french": german["reference"]}
        await apply(there, adapted(model, "both", **swapped))
        await until(lambda: replicas(worker)["team-a/both"].release != before)
        registry = there.control.services.registry
        assert registry.get("team-a", "both").entry.adapters == ("german", "french")


async def test_an_adapter_of_another_namespace_or_of_another_kind_cannot_be_named() -> None:
    async with place() as there:
        await with_hub(there, "w")
        model = await model_of(there, "team-a")
        theirs = await upload_model(there, "team-b", b"thei", "adapter")
        for reference in (theirs["reference"], model, "cas:adapter/unknown"):
            body = {"document": adapted(model, german=reference)}
            status, answer = await ask(there, "POST", "/v1/services", json=body)
            assert status == 422, answer
            (problem,) = json.loads(answer)["error"]["problems"]
            assert problem["path"].startswith("spec.inputs.german")


async def test_a_service_whose_adapter_is_revoked_ends() -> None:
    async with place() as there:
        worker = await with_hub(there, "w")
        model = await model_of(there, "team-a")
        german = await upload_model(there, "team-a", b"germ", "adapter")
        await apply(there, service("team-a", model, "plain"))
        await apply(there, adapted(model, german=german["reference"]))
        await until(lambda: set(replicas(worker)) == {"team-a/plain", "team-a/ask"})
        await revoke(there, german["reference"])
        await until(lambda: set(replicas(worker)) == {"team-a/plain"})
