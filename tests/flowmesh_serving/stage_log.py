"""Logs of a router's requests to services with stages, and of a host's batches, and their replay.

A log has what the code was given, in order, and what it did. The replay gives the same to fresh
code that has no sockets, no engines and no clock of its own.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.flowmesh_serving.request_parts import RouterEnd, SerialCode, Wire
from tests.flowmesh_serving.request_world import RequestWorld, Worker
from tests.flowmesh_worker.batch_runner import BatchRunner
from tests.virtual_time import VirtualTime

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import ComponentCall, RunStages
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_serving.calls.replicas import ReplicaTable
from flowmesh_serving.stages.staged_requests import Event, PendingRequest, StagedRequests
from flowmesh_worker.engines.code.chain_results import ChainResult
from flowmesh_worker.engines.code.component_batches import ComponentBatches
from flowmesh_worker.engines.code.component_frames import BatchCall, CallResult
from flowmesh_worker.ipc.passed_values import StageBytes

Command = tuple[str, str, Any]
"""What was done, to which link or request, and the message."""


@dataclass(frozen=True, slots=True)
class LinkName:
    """A link to a hub.

    Attributes:
        number: differs between links to hubs of one worker.
    """

    worker: str
    number: int
    incarnation: str = ""
    peer: str = ""

    def __str__(self) -> str:
        return f"{self.worker}/{self.number}"


@dataclass(slots=True)
class Entry:
    """Something that a router was given, and what it did.

    Attributes:
        kind: ``loads``, ``removed``, ``lost``, ``frame``, ``begin``, ``end`` or ``credit``.
        given: with names in place of links and requests.
        commands: in order, with what the client does at once about an event: it ``ends`` the
            request, or ``reads`` some bytes.
    """

    kind: str
    given: tuple[Any, ...]
    commands: list[Command] = field(default_factory=list)


class RouterLog:
    """What one router was given, and what it did.

    Attributes:
        peers: of the router, whose keys are random.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.peers: Any = None
        self._names: dict[int, tuple[Any, LinkName]] = {}
        self._is_inside = False

    def name_of(self, link: Any) -> LinkName:
        """Returns the name of a link, as it is when it is first used."""
        if id(link) not in self._names:
            name = LinkName(link.worker, len(self._names), link.incarnation, link.peer)
            self._names[id(link)] = (link, name)
        return self._names[id(link)][1]

    def did(self, kind: str, target: Any, message: Any) -> None:
        """Records a command; one that follows from nothing that is recorded has no place."""
        if self._is_inside:
            name = target if isinstance(target, str) else str(self.name_of(target))
            self.entries[-1].commands.append((kind, name, message))

    def given(self, act: Callable[[], Any], kind: str, *given: Any) -> Any:
        """Records an event around what the router does about it; those inside it are part of it."""
        if self._is_inside:
            return act()
        self.entries.append(Entry(kind, given))
        self._is_inside = True
        try:
            return act()
        finally:
            self._is_inside = False


class RecordedReplicas(ReplicaTable):
    """The replicas of a router that keeps a log."""

    log: RouterLog

    def update(self, link: Any, loads: Any) -> bool:
        act = super().update
        return bool(
            self.log.given(lambda: act(link, loads), "loads", self.log.name_of(link), loads)
        )

    def remove(self, link: Any) -> None:
        act = super().remove
        self.log.given(lambda: act(link), "removed", self.log.name_of(link))


class RecordedRequests(StagedRequests):
    """The requests of a router that keeps a log."""

    def __init__(self, replicas: ReplicaTable, traces: None = None) -> None:
        super().__init__(replicas, traces)
        assert isinstance(replicas, RecordedReplicas)
        self.log = replicas.log
        self.log.peers = self._peers

    def begin(
        self,
        service: str,
        graph: LoadedGraph,
        run: RunStages,
        on_event: Callable[[Event], None],
        keys: Mapping[str, str],
    ) -> PendingRequest:
        def happened(event: Event) -> None:
            self.log.did("event", run.request_id, event)
            on_event(event)

        act, log = super().begin, self.log

        def begun() -> PendingRequest:
            try:
                return act(service, graph, run, happened, keys)
            except OpenAiError as error:
                log.did("refused", run.request_id, error.code)
                raise

        made: PendingRequest = log.given(begun, "begin", service, graph, run, keys)
        return made

    def end(self, pending: PendingRequest) -> None:
        act = super().end
        self.log.did("ends", pending.request_id, None)
        self.log.given(lambda: act(pending), "end", pending.request_id)

    def add_credit(self, pending: PendingRequest, size: int) -> None:
        act = super().add_credit
        self.log.did("reads", pending.request_id, size)
        self.log.given(lambda: act(pending, size), "credit", pending.request_id, size)

    def reply(self, link: Any, message: Any) -> Any:
        act, name = super().reply, self.log.name_of(link)
        return self.log.given(lambda: act(link, message), "frame", name, message)

    def lost(self, link: Any) -> None:
        act = super().lost
        self.log.given(lambda: act(link), "lost", self.log.name_of(link))


class RecordedEnd(RouterEnd):
    """A router's end of a link, which records what is sent."""

    def __init__(self, worker: str, wire: Wire, world: "RecordedWorld") -> None:
        super().__init__(worker, wire)
        self._world = world

    def use_graph(self, graph: LoadedGraph) -> None:
        self._world.log.did("graph", self, graph.digest)
        super().use_graph(graph)

    def answer(self, message: Any) -> None:
        self._world.log.did("answer", self, message)
        super().answer(message)

    def defer(self, message: Any) -> None:
        self._world.log.did("defer", self, message)
        super().defer(message)


class ReplayedLink:
    """A link that records what is sent, and sends nothing."""

    def __init__(self, name: LinkName, sent: list[Command]) -> None:
        self.worker, self.incarnation, self.peer = name.worker, name.incarnation, name.peer
        self._name = str(name)
        self._sent = sent

    def use_graph(self, graph: LoadedGraph) -> None:
        self._sent.append(("graph", self._name, graph.digest))

    def answer(self, message: Any) -> None:
        self._sent.append(("answer", self._name, message))

    def defer(self, message: Any) -> None:
        self._sent.append(("defer", self._name, message))


class ReplayedRouter:
    """The code of a router's requests, given a log."""

    def __init__(self, log: RouterLog) -> None:
        self._replicas = ReplicaTable(lambda *_: True)
        self._staged = StagedRequests(self._replicas)
        self._staged._peers = log.peers
        self._links: dict[LinkName, Any] = {}
        self._pending: dict[str, PendingRequest] = {}
        self._sent: list[Command] = []
        self._entry = Entry("", ())

    def does(self, entry: Entry) -> list[Command]:
        """Gives it an event; returns what it does."""
        self._sent.clear()
        self._entry = entry
        match entry.kind, entry.given:
            case "loads", (link, loads):
                self._replicas.update(self._link(link), loads)
            case "removed", (link,):
                self._replicas.remove(self._link(link))
            case "lost", (link,):
                self._staged.lost(self._link(link))
            case "frame", (link, message):
                self._staged.reply(self._link(link), message)
            case "begin", (service, graph, run, keys):
                self._begin(service, graph, run, keys)
            case "end", (request_id,):
                self._staged.end(self._pending[request_id])
            case "credit", (request_id, size):
                self._staged.add_credit(self._pending[request_id], size)
            case _:
                raise AssertionError(entry.kind)
        return list(self._sent)

    def _begin(
        self, service: str, graph: LoadedGraph, run: RunStages, keys: Mapping[str, str]
    ) -> None:
        name = run.request_id
        try:
            self._pending[name] = self._staged.begin(
                service, graph, run, lambda event: self._happened(name, event), keys
            )
        except OpenAiError as error:
            self._sent.append(("refused", name, error.code))

    def _happened(self, name: str, event: Event) -> None:
        """Does what the client did at once about an event."""
        self._sent.append(("event", name, event))
        while (place := len(self._sent)) < len(self._entry.commands):
            kind, request_id, given = command = self._entry.commands[place]
            if request_id != name or kind not in ("ends", "reads"):
                return
            self._sent.append(command)
            if kind == "ends":
                self._staged.end(self._pending[name])
            else:
                self._staged.add_credit(self._pending[name], given)

    def _link(self, name: LinkName) -> Any:
        return self._links.setdefault(name, ReplayedLink(name, self._sent))


def router_differences(log: RouterLog) -> list[tuple[Entry, list[Command]]]:
    """Returns the events about which fresh code does something else, with what it does."""
    router = ReplayedRouter(log)
    does = [(entry, router.does(entry)) for entry in log.entries]
    return [(entry, done) for entry, done in does if done != entry.commands]


# -- batches -------------------------------------------------------------------------------------

Batch = tuple[float, str, tuple[BatchCall, ...], float]
"""When a batch began, of which component, its calls, and for how long it may run."""


@dataclass(slots=True)
class BatchLog:
    """What the batches of a host were given, and what they did.

    Attributes:
        events: time, kind (``call``, ``left`` or ``ended``), and what belongs to it.
        batches: in order.
    """

    events: list[tuple[float, str, Any]] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)


class RecordedBatches(ComponentBatches):
    """The batches of a host that keep a log."""

    def __init__(self, log: BatchLog, *given: Any) -> None:
        super().__init__(*given)
        self.log = log

    def call(
        self,
        call: ComponentCall,
        passed: Mapping[str, StageBytes] = {},
        since_s: float | None = None,
    ) -> asyncio.Future[ChainResult]:
        self.log.events.append((self._loop.time(), "call", (call, passed, since_s)))
        return super().call(call, passed, since_s)

    def _left(self, chain: ComponentCall, result: asyncio.Future[ChainResult]) -> None:
        if result.cancelled():
            self.log.events.append((self._loop.time(), "left", chain.call_id))
        super()._left(chain, result)


class RecordedCode(SerialCode):
    """Runs batches, and records when each begins and ends."""

    def __init__(self, log: BatchLog, *given: Any) -> None:
        super().__init__(*given)
        self.log = log

    async def run(
        self,
        component: str,
        calls: Sequence[BatchCall],
        within_s: float,
        passed: Sequence[Mapping[str, StageBytes]],
    ) -> list[CallResult]:
        loop = asyncio.get_running_loop()
        self.log.batches.append((loop.time(), component, tuple(calls), within_s))
        results = await super().run(component, calls, within_s, passed)
        self.log.events.append((loop.time(), "ended", results))
        return results


class ReplayedCode(BatchRunner):
    """Runs nothing: a batch ends when the log says so."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.running: asyncio.Future[list[CallResult]] | None = None

    async def run(
        self, component: str, calls: Sequence[BatchCall], within_s: float, passed: Any
    ) -> list[CallResult]:
        del passed
        loop = asyncio.get_running_loop()
        self.batches.append((loop.time(), component, tuple(calls), within_s))
        self.running = loop.create_future()
        return await self.running


async def replayed_batches(log: BatchLog, components: Any) -> list[Batch]:
    """Returns the batches that fresh code begins, given a log; in a loop of virtual time.

    It stops after the first one that is not in the log.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTime)
    code = ReplayedCode()
    batches = ComponentBatches(components, code, "demote", lambda: None)
    results: dict[str, asyncio.Future[ChainResult]] = {}
    for at_s, kind, given in log.events:
        if code.batches != log.batches[: len(code.batches)]:
            break
        loop.now_s = at_s
        match kind:
            case "call":
                results[given[0].call_id] = batches.call(*given)
            case "left":
                results[given].cancel()
            case "ended":
                assert code.running is not None
                code.running.set_result(given)
        for _ in range(8):
            await asyncio.sleep(0)
    for result in results.values():
        if result.done() and not result.cancelled():
            result.exception()  # has been seen
    await batches.close()
    return code.batches


# -- the world -----------------------------------------------------------------------------------


class RecordedWorld(RequestWorld):
    """A world whose routers and hosts keep logs.

    Attributes:
        logs: of its routers, one after the other.
        batch_logs: of its hosts.
    """

    def __init__(self, seed: int) -> None:
        self.logs: list[RouterLog] = []
        self.batch_logs: list[BatchLog] = []
        super().__init__(seed)

    @property
    def log(self) -> RouterLog:
        """The log of the router that runs."""
        return self.logs[-1]

    def _start_router(self) -> None:
        self.logs.append(RouterLog())
        self.replicas = RecordedReplicas(lambda *_: True)
        self.replicas.log = self.log
        self.staged = RecordedRequests(self.replicas)

    def _link(self, worker: Worker) -> None:
        super()._link(worker)
        worker.from_router = RecordedEnd(worker.name, worker.from_router.wire, self)

    def new_host(self) -> Any:
        host = super().new_host()
        log = BatchLog()
        self.batch_logs.append(log)
        host.runner = RecordedCode(log, host.runner.code, self.rng)
        engine = host.engine
        engine._runner = host.runner
        engine._batches = RecordedBatches(
            log, self._loaded, host.runner, "demote", engine._profile_changed
        )
        return host
