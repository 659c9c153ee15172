"""The processes of a cluster, started apart, as Kubernetes would.

Routers read their services from the leader, hubs reach them by TLS with link certificates, and the
leader plans the replicas of two services: one of OpenAI's API, and one with stages.
"""

import asyncio
import contextlib
import datetime
import os
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from tests.flowmesh_control.fabric import API_TOKEN, Fabric
from tests.flowmesh_control.test_restart import Elsewhere
from tests.flowmesh_serving.echo_fabric import ROUTERS, WORKERS, EchoFabric, Part
from tests.flowmesh_serving.machines import free_port
from tests.flowmesh_serving.stack import MODEL, SERVICE

from flowmesh_core.protocol.router_services import RouterServices
from flowmesh_operator.access.gateway_certificate import gateway_certificate

STAGED = "team-a/staged"


def _says(value: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "{{ " + value + " }}"}]}


_TWO: dict[str, Any] = {"uses": "test.echo", "inputs": {}, "replicas": {"min": 2, "max": 2}}
_SPECS: dict[str, dict[str, Any]] = {
    SERVICE: {"inputs": {}, "components": {"llm": _TWO}, "openai": {"model": MODEL}},
    STAGED: {
        "inputs": {},
        "components": {"first": _TWO, "second": _TWO},
        "stages": [
            {"name": "heard", "component": "first", "with": _says("request.text")},
            {"name": "said", "component": "second", "with": _says("heard.completion")},
        ],
        "reply": {"said": "said.completion"},
    },
}
_OK = 200


@dataclass
class ClusterFabric(EchoFabric):
    """The processes of a cluster.

    Attributes:
        hub_ports: where each router listens for hubs.
        tokens: of callers, by service.
    """

    hub_ports: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)

    def router_command(self, name: str) -> tuple[str, ...]:
        """Returns what starts a router, without its port."""
        given = {
            "--hubs-port": self.hub_ports[name],
            "--tls-cert": self.root / "tls.crt",
            "--tls-key": self.root / "tls.key",
            "--control": self.leader.url,
            "--token": self.root / "token",
            "--ready-file": self.root / name / "url",
            "--parent": os.getpid(),
        }
        words = (str(word) for option in given.items() for word in option)
        return (sys.executable, "-m", "flowmesh_serving.router", *words)

    async def apply(self, service: str, spec: dict[str, Any]) -> None:
        """Applies a service, and creates a token for it."""
        namespace, _, name = service.partition("/")
        document = {
            "apiVersion": "flowmesh.dev/v1alpha1",
            "kind": "FlowMeshService",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }
        await self.fabric.call("POST", "/v1/services", body={"document": document})
        path = f"/v1/services/{name}/tokens?namespace={namespace}"
        made = await self.fabric.call("POST", path, body={"valid_s": 3600.0})
        self.tokens[service] = made["token"]
        self.replicas[service] = 2 * len(spec["components"])

    async def placed(self) -> dict[str, str]:
        """Waits until the leader lists its services; returns the worker of each replica."""
        headers = {"Authorization": f"Bearer {API_TOKEN}"}
        async with asyncio.timeout(90):
            while True:
                async with self.http.get(f"{self.leader.url}/v1/router", headers=headers) as answer:
                    if answer.status == _OK:
                        listed = msgspec.json.decode(await answer.read(), type=RouterServices)
                        return {r: w for s in listed.services for r, w in (s.placed or {}).items()}
                await asyncio.sleep(0.05)

    def engines(self) -> set[int]:
        """Returns the processes of hubs and of engine hosts that take calls."""
        parts = (Part.HUB, Part.HOST)
        return {pid for worker in WORKERS for part in parts for pid in self._pids_of(worker, part)}

    @contextlib.contextmanager
    def watched(self) -> Iterator[set[str]]:
        """Yields the numbers of replicas that routers show during the block, if they are less."""
        fewer: set[str] = set()
        task = asyncio.create_task(self._watch(fewer))
        try:
            yield fewer
        finally:
            task.cancel()

    async def _watch(self, fewer: set[str]) -> None:
        wanted = self.wanted_lines()
        while True:
            for url in self.urls.values():
                fewer |= wanted - set(await self.metrics(url))
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def cluster_fabric(root: Path) -> AsyncIterator[ClusterFabric]:
    """Yields a cluster with a replica of each component on each worker, ready at both routers."""
    now = datetime.datetime.now(datetime.UTC)
    for name, content in gateway_certificate(["localhost"], 1, now).items():
        (root / name).write_bytes(content)
    (root / "token").write_text(API_TOKEN)
    ports = {name: free_port() for name in ROUTERS}
    (root / "hub-ports").write_text(" ".join(map(str, ports.values())))
    leader = Elsewhere(root, "tests.flowmesh_serving.asked_control")
    trust = ssl.create_default_context(cafile=root / "ca.crt")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        fabric = Fabric(root, leader, http)  # type: ignore[arg-type]
        made = ClusterFabric(root, leader, http, fabric, trust=trust, hub_ports=ports)
        try:
            await leader.start(http)
            for name in ROUTERS:
                (root / name).mkdir()
                await made.start_router(name)
            for service, spec in _SPECS.items():
                await made.apply(service, spec)
            for name in WORKERS:
                await made.start_worker(name)
            await made.until_ready()
            yield made
        finally:
            await made.close()
