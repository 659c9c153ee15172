"""Services of stored models, and workers that can hold their replicas, by hand."""

import asyncio
import contextlib
from typing import Any

import msgspec
from tests.attacks.by_hand import HandWorker, Place
from tests.flowmesh_control.derived_work import ask, upload_model

from flowmesh_api.v1.services import ServiceStatus
from flowmesh_core.catalog.builtin.llm import GENERATE
from flowmesh_core.protocol.messages import EngineVariant

SHAPE = {
    "engines": {GENERATE.name: GENERATE.versions},
    "device_memory_mib": 8192,
    "host_memory_mib": 8192,
    "variants": (EngineVariant(GENERATE.name, "vllm", ("auto", "float32")),),
}


BEATING: set[asyncio.Task[None]] = set()


async def with_hub(there: Place, name: str, pool: str = "good", **shape: Any) -> HandWorker:
    """A worker that can hold replicas; its heartbeats go on until its connection ends."""
    worker = await there.join(name, pool, shape={**SHAPE, **shape}, replicas=())
    BEATING.add(asyncio.create_task(_beat(worker)))
    return worker


async def _beat(worker: HandWorker) -> None:
    while not worker.closed:
        with contextlib.suppress(ConnectionResetError):
            await worker.sync()
        await asyncio.sleep(1.0)  # as a worker's interval


async def model_of(there: Place, namespace: str, values: bytes = b"base") -> str:
    """Uploads a model; returns its reference."""
    return str((await upload_model(there, namespace, values))["reference"])


def service(namespace: str, model: str, name: str = "ask") -> dict[str, Any]:
    component = {"uses": GENERATE.name, "inputs": {"model": "inputs.base"}}
    spec = {"inputs": {"base": {"model": model}}, "components": {"llm": component}}
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


async def apply(there: Place, document: dict[str, Any]) -> ServiceStatus:
    status, body = await ask(there, "POST", "/v1/services", json={"document": document})
    assert status == 200, body
    return msgspec.json.decode(body, type=ServiceStatus)


async def shown(there: Place, namespace: str) -> ServiceStatus:
    status, body = await ask(there, "GET", f"/v1/services/ask?namespace={namespace}")
    assert status == 200, body
    return msgspec.json.decode(body, type=ServiceStatus)


def served(worker: HandWorker) -> set[str]:
    """Returns the services that the worker has replicas of."""
    return {replica.service for replica in worker.replicas or ()}
