"""A router with hubs and hosts of components, each on its real socket, for services with stages."""

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import pytest
from tests.flowmesh_core.catalog.built_in import builtin_catalog
from tests.flowmesh_serving.stack import (
    ECHO,
    SALTS,
    TOKEN,
    Host,
    Stack,
    router_of,
    start_host_process,
    until,
)

from flowmesh_core.graph.service_plan import ServicePlan, compile_service
from flowmesh_core.graph.service_stages import compile_stages
from flowmesh_core.openai.stage_check import stage_problems
from flowmesh_core.protocol.router_services import ServiceEntry, ServiceToken, token_hash
from flowmesh_core.spec.service import FlowMeshService
from flowmesh_worker.ipc.frames import Start
from flowmesh_worker.ipc.hub_frames import AdmitReplica
from flowmesh_worker.serving.peer_links import PeerLinks
from flowmesh_worker.serving.service_hub import ServiceHub

SERVICE = "team-a/ask"
COMPONENT = "flowmesh_worker.engines.code.component:Component"
URL = f"/v1/services/{SERVICE}:invoke"


def service_of(spec: dict[str, Any]) -> FlowMeshService:
    """Returns a service of ``team-a``."""
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": "ask", "namespace": "team-a"},
        "spec": spec,
    }
    return FlowMeshService.model_validate(document)


def python(code: str, function: str, **more: Any) -> dict[str, Any]:
    """Returns a Python component."""
    return {"python": {"code": code, "function": function}, **more}


def entry_of(service: FlowMeshService, **more: Any) -> ServiceEntry:
    """Returns what the router's list has of the service."""
    tokens = more.pop("tokens", (ServiceToken(token_hash(TOKEN), "team-a"),))
    graph = compile_stages(service.spec, lambda *_: None, stage_problems)
    return ServiceEntry(SERVICE, "ask", tokens, graph=graph, **more)


class Machines(Protocol):
    """Where router and hubs are.

    Attributes:
        trust: verifies the router; True where it has no certificate.
    """

    trust: ssl.SSLContext | bool

    def router(
        self, folder: Path, listed: tuple[ServiceEntry, ...]
    ) -> contextlib.AbstractAsyncContextManager[Stack]:
        """Yields a router."""
        ...

    async def hub(self, stack: Stack, worker: str) -> Any:
        """Returns the hub of a worker, which connects to the router: one, or one's process."""
        ...


class OneMachine:
    """Unix sockets."""

    trust: ssl.SSLContext | bool = True

    def router(
        self, folder: Path, listed: tuple[ServiceEntry, ...]
    ) -> contextlib.AbstractAsyncContextManager[Stack]:
        """See ``Machines.router``."""
        return router_of(folder, listed)

    async def hub(self, stack: Stack, worker: str) -> ServiceHub:
        """See ``Machines.hub``."""
        hub = ServiceHub(worker, stack.usage.append)
        hub.use_routers((f"unix:{stack.folder / 'hubs'}",))
        return hub


@dataclass
class StageStack:
    """The parts of a running stack.

    Attributes:
        hubs: by worker.
        hosts: by worker and by the components that they load.
        machines: where its router and hubs are.
        replies: asks the router.
    """

    stack: Stack
    plan: ServicePlan
    session: aiohttp.ClientSession
    hubs: dict[str, ServiceHub] = field(default_factory=dict)
    hosts: dict[tuple[str, str], Host] = field(default_factory=dict)
    machines: Machines = field(default_factory=OneMachine)

    async def ask(self, request: Any, **headers: str) -> tuple[int, Any]:
        """Returns the status and the body of a reply."""
        url = f"{self.stack.router.url}{URL}"
        async with self.session.post(url, json=request, headers=headers) as response:
            return response.status, await response.json()

    async def events(self, request: Any) -> list[tuple[str, str]]:
        """Returns the events of a streamed reply, each as name and data."""
        url, headers = f"{self.stack.router.url}{URL}", {"Accept": "text/event-stream"}
        async with self.session.post(url, json=request, headers=headers) as response:
            text = await response.text()
        lines = [event.split("\n") for event in text.strip().split("\n\n")]
        return [(name.removeprefix("event: "), data.removeprefix("data: ")) for name, data in lines]

    async def start_worker(self, worker: str, components: list[str]) -> None:
        """Starts a hub, and hosts of these components."""
        hub = self.hubs[worker] = await self.machines.hub(self.stack, worker)
        hosts: dict[str, Host] = {}
        for component in self.plan.components:
            if component.name not in components:
                continue
            step = component.step
            key = repr(step.params) if step.engine == "code.component" else component.name
            if key not in hosts:
                loads = COMPONENT if step.engine == "code.component" else ECHO
                start = Start(step.engine, loads, {}, (), 512, 1, step.params, "")
                host = await start_host_process(
                    self.stack.folder / f"{worker}-{component.name}", start
                )
                hosts[key] = self.hosts[worker, component.name] = host
            admitted = AdmitReplica(
                f"{SERVICE}/{component.name}/r1/{worker}",
                SERVICE,
                str(hosts[key].socket),
                component.calls_max,
                SALTS,
                component=component.name,
            )
            await hub.admit(admitted)

    async def metrics(self) -> str:
        async with self.session.get(f"{self.stack.router.url}/metrics") as response:
            return await response.text()

    async def until_passed(self, tier: str, least: float = 1) -> float:
        """Waits until the router counts so many bytes of a tier, and returns how many."""
        name = f'flowmesh_service_hop_bytes_total{{tier="{tier}"}} '
        async with asyncio.timeout(30):
            while True:
                lines = (await self.metrics()).splitlines()
                found = sum(float(line.removeprefix(name)) for line in lines if name in line)
                if found >= least:
                    return found
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def stage_stack(
    folder: Path,
    spec: dict[str, Any],
    workers: dict[str, list[str]],
    machines: Machines | None = None,
    **entry: Any,
) -> AsyncIterator[StageStack]:
    """Yields a router and one hub a worker, once all replicas are ready.

    Args:
        folder: for sockets and files.
        spec: of the service; its engines are ``test.echo``.
        workers: the components of each worker.
        machines: where router and hubs are; on one machine, by default.
        entry: changes of the router's list.
    """
    machines = OneMachine() if machines is None else machines
    service = service_of(spec)
    plan = compile_service(service, builtin_catalog())
    os.makedirs(folder, exist_ok=True)
    async with (
        machines.router(folder, (entry_of(service, **entry),)) as stack,
        aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {TOKEN}"},
            connector=aiohttp.TCPConnector(ssl=machines.trust),
        ) as session,
    ):
        found = StageStack(stack, plan, session, machines=machines)
        try:
            for worker, components in workers.items():
                await found.start_worker(worker, components)
            wanted = sum(map(len, workers.values()))
            staged = stack.router._staged
            await until(lambda: len(staged._replicas.of(SERVICE)) == wanted)
            yield found
        finally:
            for hub in found.hubs.values():
                hub.close()
            for host in found.hosts.values():
                with contextlib.suppress(ConnectionError):
                    await host.close()


def without_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has hubs take no values of each other, as across machines."""
    monkeypatch.setattr(PeerLinks, "listen", lambda *_: None)


async def together(*asking: Any) -> list[Any]:
    """Returns the results of requests that are sent at once."""
    return list(await asyncio.gather(*asking))
