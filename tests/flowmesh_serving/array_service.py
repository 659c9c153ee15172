"""A service of two Python components in sandboxes, of which one passes an array to the other."""

from collections.abc import Iterable
from typing import Any

import msgspec
from tests.flowmesh_serving.stack import SALTS
from tests.flowmesh_serving.stage_stack import SERVICE, entry_of, python, service_of
from tests.flowmesh_serving.stage_stack import URL as URL  # noqa: PLC0414 - of this service too

from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.graph.service_plan import compile_service
from flowmesh_core.protocol.messages import PrewarmSpec, ServingReplica
from flowmesh_core.protocol.router_services import ServiceEntry, ServiceToken, token_hash
from flowmesh_core.units import Digest

TOKEN = "fm-token-of-arrays"
"""A token calls one service, so it has its own."""
LEAST = 20_000
"""Elements of the shortest array: its 80 kB do not pass within a message."""
LENGTHS = 10_000
COMPONENTS = ("one", "two")
_CODE = """
import time
import numpy as np

def make(batch):
    time.sleep(0.02)  # a kill finds it at work
    return [{"rows": np.arange(call["n"], dtype="<f4")[::-1]} for call in batch]

def ends(batch):
    return [{"first": int(call["rows"][0]), "last": int(call["rows"][-1]),
             "length": len(call["rows"])} for call in batch]
"""
_RESOURCES = {"memory": "256Mi"}
_SERVICE = service_of(
    {
        "components": {
            "one": python(_CODE, "make", ownHost=True, resources=_RESOURCES),
            "two": python(_CODE, "ends", ownHost=True, resources=_RESOURCES),
        },
        "stages": [
            {"name": "made", "component": "one", "inputs": {"n": "request.n"}},
            {"name": "used", "component": "two", "inputs": {"rows": "made.rows"}},
        ],
        "reply": {"out": "used"},
    }
)


def reply(length: int) -> dict[str, Any]:
    """Returns the right answer to a request."""
    return {"out": {"first": length - 1, "last": 0, "length": length}}


def replica_id(component: str, worker: str) -> str:
    """Returns the replica that a worker gets."""
    return f"{SERVICE}/{component}/r1/{worker}"


def replicas(worker: str, catalog: Catalog) -> tuple[ServingReplica, ...]:
    """Returns the replicas of a worker: one of each component."""
    return tuple(
        ServingReplica(
            replica_id(component.name, worker),
            SERVICE,
            component.name,
            "r1",
            PrewarmSpec(
                Digest(f"{number:02x}" * 32),
                component.step.engine,
                component.step.contract,
                component.step.implementation,
                signature_params=component.step.params,
                memory_mib=256,
            ),
            component.calls_max,
            SALTS,
        )
        for number, component in enumerate(compile_service(_SERVICE, catalog).components, 1)
    )


def entry(workers: Iterable[str]) -> ServiceEntry:
    """Returns what the routers' list has of the service."""
    placed = {
        replica_id(component, worker): worker for worker in workers for component in COMPONENTS
    }
    found = entry_of(_SERVICE, placed=placed, in_flight_max=256, max_in_flight=256)
    return msgspec.structs.replace(found, tokens=(ServiceToken(token_hash(TOKEN), "team-a"),))
