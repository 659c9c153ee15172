"""Requests to a service with stages in virtual time: the code of router, hubs and component hosts.

Frames go from part to part without sockets, in order and after a random delay. Clients leave, and
routers, hubs and hosts are lost, at random. What each part may hold is known from the frames that
it was given.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from tests.flowmesh_core.catalog.built_in import builtin_catalog
from tests.flowmesh_serving.request_parts import Host, HubEnd, RouterEnd, SerialCode, Wire
from tests.flowmesh_serving.stack import SALTS
from tests.flowmesh_serving.stage_stack import SERVICE, entry_of, python, service_of

from flowmesh_core.graph.service_plan import compile_service
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import (
    CallHostHello,
    EndRequest,
    ReplicaLoads,
    RunStages,
    StageFailed,
)
from flowmesh_core.stages.joins import MatchedSet
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_serving.calls.replicas import ReplicaTable
from flowmesh_serving.stages.staged_requests import UNROUTED, Event, StagedRequests
from flowmesh_worker.engines.code.component import Component
from flowmesh_worker.engines.code.component_batches import ComponentBatches
from flowmesh_worker.engines.code.component_code import ComponentCode, loaded_code
from flowmesh_worker.host.call_server import _HubConnection
from flowmesh_worker.ipc.descriptor_socket import DescriptorSocket, descriptor_pair
from flowmesh_worker.ipc.hub_frames import AdmitReplica
from flowmesh_worker.ipc.spare_files import SpareFiles
from flowmesh_worker.serving.instance_link import InstanceLink
from flowmesh_worker.serving.service_hub import ServiceHub

BUDGET_MS = 400
CODE = """
def upper(batch):
    return [{"text": call["text"].upper() * 40} for call in batch]

def double(batch):
    if any(call["text"] == "raise" for call in batch):
        raise ValueError("no such word")
    return [{"text": call["text"] * 80} for call in batch]

def join(batch):
    return [{"text": call["a"]["text"] + call["b"]["text"]} for call in batch]

def size(batch):
    return [{"size": len(call["text"]["text"])} for call in batch]
"""
SPEC: dict[str, Any] = {
    "components": {name: python(CODE, name) for name in ("upper", "double", "join", "size")},
    "stages": [
        {"name": "a", "component": "upper", "inputs": {"text": "request.q"}},
        {"name": "b", "component": "double", "inputs": {"text": "request.q"}},
        {"name": "both", "component": "join", "inputs": {"a": "a", "b": "b"}},
        {"name": "last", "component": "size", "inputs": {"text": "both"}},
    ],
    "reply": {"size": "last.size"},
}
WORKERS = {
    "w1": ("upper", "double", "join", "size"),
    "w2": ("upper", "double", "join", "size"),
    "w3": ("upper", "double"),
    "w4": ("join", "size"),
}


@dataclass
class Worker:
    """A worker with a hub and a host.

    Attributes:
        held: the requests that its hub was sent and that were not ended.
    """

    name: str
    host: Host
    hub: ServiceHub
    instance: InstanceLink
    to_router: HubEnd
    from_router: RouterEnd
    held: set[str] = field(default_factory=set)


class RequestWorld:
    """One router, and workers.

    Attributes:
        live: requests whose clients wait.
        outcomes: of the requests, counted.
        check: called after each frame.
        ticks: frames that were delivered.
    """

    def __init__(self, seed: int, check: Callable[["RequestWorld"], None] | None = None) -> None:
        self.rng = random.Random(seed)
        self.live: set[str] = set()
        self.outcomes: Counter[str] = Counter()
        self.workers: dict[str, Worker] = {}
        self.ticks = 0
        self._check = check
        self._service = service_of(SPEC)
        plan = compile_service(self._service, builtin_catalog())
        self._loaded = loaded_code(plan.components[0].step.params["components"])
        self._calls_max = {c.name: c.calls_max for c in plan.components}
        graph = entry_of(self._service).graph
        assert graph is not None
        self._graph = LoadedGraph(graph)
        self._start_router()
        for name in WORKERS:
            self.start_worker(name, self.new_host())

    def tick(self) -> None:
        """A frame was delivered."""
        self.ticks += 1
        if self._check is not None:
            self._check(self)

    # -- clients ---------------------------------------------------------------------------------

    async def ask(self, number: int, *, leaves_after_s: float | None = None) -> None:
        """A client asks, and may leave before its reply."""
        text = "raise" if self.rng.random() < 0.02 else f"question {number}"
        run = RunStages(
            f"r{number}",
            "",
            UNROUTED,
            msgspec.json.encode({"q": text}),
            BUDGET_MS,
            0,
            next(iter(SALTS)),
            number,
        )
        staged = self.staged
        events: asyncio.Queue[Event] = asyncio.Queue()
        try:
            pending = staged.begin(SERVICE, self._graph, run, events.put_nowait, {})
        except OpenAiError as error:
            self.outcomes[error.code or ""] += 1
            return
        self.live.add(run.request_id)
        try:
            async with asyncio.timeout(leaves_after_s or 2 * BUDGET_MS / 1000):
                event = await events.get()
            if isinstance(event, MatchedSet):
                size = msgspec.json.decode(event.values["last"])["size"]
                assert size == 120 * len(text)
                self.outcomes["ok"] += 1
            else:
                assert isinstance(event, StageFailed)
                self.outcomes[event.outcome] += 1
        except TimeoutError:
            self.outcomes["left" if leaves_after_s else "timeout"] += 1
        finally:
            if staged is self.staged:
                staged.end(pending)
            self.live.discard(run.request_id)

    async def run(self, requests: int, per_s: float = 150.0, faults_every_s: float = 0.2) -> None:
        """Has clients ask while parts are lost, and waits until nothing moves any more."""
        errors: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        await asyncio.sleep(0.1)
        faults = asyncio.create_task(self._lose_parts(faults_every_s))
        asking: set[asyncio.Task[None]] = set()
        for number in range(requests):
            leaves = self.rng.uniform(0.001, 0.1) if self.rng.random() < 0.25 else None
            task = asyncio.create_task(self.ask(number, leaves_after_s=leaves))
            asking.add(task)
            task.add_done_callback(asking.discard)
            await asyncio.sleep(self.rng.expovariate(per_s))
        faults.cancel()
        await asyncio.gather(*asking)
        await asyncio.sleep(2.0)
        for context in errors:
            raise context.get("exception") or AssertionError(context["message"])

    async def _lose_parts(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / every_s))
            name = self.rng.choice(list(self.workers))
            self.rng.choice([self.lose_hub, self.lose_host, self.lose_router])(name)

    # -- faults ----------------------------------------------------------------------------------

    def lose_hub(self, name: str) -> None:
        """A hub's process ends, and is started again; the host goes on."""
        self._end_hub(self.workers[name])
        self.start_worker(name, self.workers[name].host)

    def lose_host(self, name: str) -> None:
        """A host's process ends, with what it keeps, and is started again."""
        worker = self.workers[name]
        worker.instance._lost()
        for connection in worker.host.connections:
            connection.channel.close()
        worker.host = self.new_host()
        self._admit(worker)

    def lose_router(self, name: str) -> None:
        """The router's process ends, and is started again."""
        del name
        for request in list(self.live):
            self.live.discard(request)
        for worker in self.workers.values():
            worker.from_router.wire.close()
            worker.to_router.wire.close()
            worker.held.clear()
            worker.hub.forget(worker.to_router)  # type: ignore[arg-type]
        self._start_router()
        for worker in self.workers.values():
            self._link(worker)
            worker.hub._report_soon()

    # -- parts -----------------------------------------------------------------------------------

    def _wire(self, deliver: Callable[[Any], None]) -> Wire:
        return Wire(self.rng, deliver, self.tick)

    def _start_router(self) -> None:
        self.replicas = ReplicaTable(lambda *_: True)
        self.staged = StagedRequests(self.replicas)

    def new_host(self) -> Host:
        """Starts a host without connections."""
        engine = Component()
        runner = SerialCode(ComponentCode(self._loaded, SpareFiles()), self.rng)
        engine._components, engine._runner = self._loaded, runner
        engine._batches = ComponentBatches(self._loaded, runner, "demote", engine._profile_changed)
        return Host(engine, runner)

    def start_worker(self, name: str, host: Host) -> None:
        """Starts a hub beside a host."""
        hub = ServiceHub(name, lambda _: None)
        nothing: Any = None
        worker = self.workers[name] = Worker(name, host, hub, nothing, nothing, nothing)
        self._link(worker)
        self._admit(worker)

    def _link(self, worker: Worker) -> None:
        to_hub = self._wire(lambda message: self._to_hub(worker, message))
        worker.from_router = RouterEnd(worker.name, to_hub)
        worker.to_router = HubEnd(self._wire(lambda message: self._to_router(worker, message)))
        worker.hub._routers = {"router": worker.to_router}  # type: ignore[dict-item]

    def _admit(self, worker: Worker) -> None:
        worker.instance = instance = InstanceLink(worker.hub._report_soon)
        host = worker.host
        ours, theirs = descriptor_pair()
        descriptors = DescriptorSocket(theirs)
        ours.close()
        descriptors.close()  # all values here are inside their frames
        connection = _HubConnection(host.engine, descriptors, lambda _: None, lambda _: None)
        to_host = self._wire(connection._receive)
        connection.channel = self._wire(instance._receive)  # type: ignore[assignment]
        host.connections.append(connection)
        instance._channel = to_host  # type: ignore[assignment]
        instance._receive(CallHostHello(*host.engine.serves()))
        path = f"{worker.name}-{self.rng.random()}"
        worker.hub._instances[path] = instance
        for component in WORKERS[worker.name]:
            admitted = AdmitReplica(
                f"{SERVICE}/{component}/r1/{worker.name}",
                SERVICE,
                path,
                self._calls_max[component],
                SALTS,
                component=component,
            )
            admission = worker.hub.admit(admitted)
            with contextlib.suppress(StopIteration):  # it waits for nothing
                admission.send(None)

    def _end_hub(self, worker: Worker) -> None:
        worker.from_router.wire.close()
        worker.to_router.wire.close()
        channel = worker.instance._channel
        assert channel is not None
        channel.close()
        connection = worker.host.connections[-1]
        connection.channel.close()
        connection._lost()
        self.staged.lost(worker.from_router)  # type: ignore[arg-type]
        self.replicas.remove(worker.from_router)  # type: ignore[arg-type]

    def _to_hub(self, worker: Worker, message: Any) -> None:
        match message:
            case RunStages(request_id=request_id):
                worker.held.add(request_id)
            case EndRequest(request_id=request_id):
                worker.held.discard(request_id)
        worker.hub.receive(worker.to_router, message)  # type: ignore[arg-type]

    def _to_router(self, worker: Worker, message: Any) -> None:
        link: Any = worker.from_router
        if isinstance(message, ReplicaLoads):
            self.replicas.update(link, message.replicas)
        else:
            self.staged.reply(link, message)
