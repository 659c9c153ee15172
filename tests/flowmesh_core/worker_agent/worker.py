"""A worker agent whose tests decide what its hosts, fetches and timers do, and when."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flowmesh_core.identity import digest_bytes
from flowmesh_core.protocol.messages import (
    Assignment,
    AttemptEnd,
    Desired,
    FailureReport,
    InputRef,
    PrewarmSpec,
    ServingReplica,
)
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent import instructions as i
from flowmesh_core.worker_agent.invariants import check_agent
from flowmesh_core.worker_agent.machine import AgentSettings, WorkerAgent
from flowmesh_core.worker_agent.ports import Preload
from flowmesh_core.worker_agent.state import Instance

T = TypeVar("T")
WALL_S = 1_000_000.0
"""How far the wall clock is ahead of the machine's."""


def digest(name: str) -> Digest:
    """A digest that a name stands for."""
    return digest_bytes(name.encode())


def blob(name: str) -> InputRef:
    """An input that has to be fetched."""
    return InputRef(Artifact("blob", digest(name), digest(name), 10))


@dataclass
class Facts:
    """Engines whose names say what they need: ``on-device`` one device, ``vllm.x`` a preload.

    Attributes:
        preloads: by the first part of an engine's name.
    """

    preloads: dict[str, Preload] = field(default_factory=dict)

    def refusal(self, wanted: Assignment | PrewarmSpec) -> FailureReport | None:
        """Engines of other versions than 1 are not here."""
        return None if wanted.contract == 1 else FailureReport("engine", "another version")

    def devices(self, engine: str, tensor_parallel: int) -> int:
        """As many as asked for, for engines named so."""
        return tensor_parallel if engine.endswith("on-device") else 0

    def preload(self, wanted: Assignment | PrewarmSpec) -> Preload | None:
        """By the first part of the name."""
        return self.preloads.get(wanted.engine.partition(".")[0])


class OneWatt:
    """One joule for every attempt that ran."""

    def __init__(self) -> None:
        self.running: set[str] = set()

    def begin(self, attempt_id: str) -> None:
        """Counts."""
        self.running.add(attempt_id)

    def end(self, attempt_id: str) -> tuple[float, bool]:
        """One where it ran."""
        ran = attempt_id in self.running
        self.running.discard(attempt_id)
        return float(ran), False


class Downloads:
    """What has come to the worker, as tests say.

    Attributes:
        received_bytes: all until now.
    """

    def __init__(self) -> None:
        self.received_bytes = 0
        self.since: dict[str, int] = {}

    def begin(self, attempt_id: str) -> None:
        """Counts."""
        assert attempt_id not in self.since
        self.since[attempt_id] = self.received_bytes

    def end(self, attempt_id: str) -> int:
        """What has come since."""
        return self.received_bytes - self.since.pop(attempt_id, self.received_bytes)


class Worker:
    """The agent, its clock, and what it has said so far. Invariants are checked at every event."""

    def __init__(
        self,
        *,
        preloads: dict[str, Preload] | None = None,
        asleep_mib: int = 0,
        **settings: Any,
    ) -> None:
        self.asleep_mib = asleep_mib
        self.facts = Facts(preloads or {})
        self.downloads = Downloads()
        self.agent = WorkerAgent(
            AgentSettings(**{"memory_mib": 1000, **settings}),
            self.facts,
            OneWatt(),
            self.downloads,
        )
        self.now_s = 0.0
        self.opened = 0
        self.done: list[i.Instruction] = []
        self.timers: dict[e.TimerKey, float] = {}
        self.post(e.Connected())

    # -- events ----------------------------------------------------------------------------------

    def post(self, event: e.Event) -> list[i.Instruction]:
        """Gives the agent an event; returns its instructions but those for timers and reports."""
        found = self.agent.apply(event, self.now_s, WALL_S + self.now_s)
        check_agent(self.agent, found)
        for instruction in found:
            match instruction:
                case i.SetTimer(timer=timer, at_s=at_s):
                    self.timers[timer] = at_s
                case i.ClearTimer(timer=timer):
                    self.timers.pop(timer, None)
        silent = (i.SetTimer, i.ClearTimer, i.SendReport)
        shown: list[i.Instruction] = [x for x in found if not isinstance(x, silent)]
        self.done += shown
        return shown

    def desire(self, **changes: Any) -> list[i.Instruction]:
        """The control plane desires something."""
        return self.post(e.DesiredReceived(Desired(epoch=1, seq=1, **changes)))

    def advance(self, seconds: float) -> list[i.Instruction]:
        """Lets time pass; timers fire in order."""
        until_s, found = self.now_s + seconds, []
        while self.timers:
            timer = min(self.timers, key=lambda key: self.timers[key])
            if self.timers[timer] > until_s:
                break
            self.now_s = self.timers.pop(timer)
            found += self.post(e.TimerFired(timer))
        self.now_s = until_s
        return found

    def load(self, instance_id: int, capacity: int = 4) -> list[i.Instruction]:
        """A host starts and loads."""
        found = self.post(e.HostStarted(instance_id))
        asleep_mib = self.asleep_mib
        loaded = e.HostLoaded(instance_id, capacity, 2.0, {"torch": "1"}, asleep_mib)
        return found + self.post(loaded)

    def asleep(self, name: str) -> list[i.Instruction]:
        """The instance of a signature, which was told to, has fallen asleep."""
        return self.post(e.HostAsleep(self.instance(name).id))

    def awake(self, name: str, wake_s: float = 0.5) -> list[i.Instruction]:
        """The instance of a signature, which was told to wake, has."""
        return self.post(e.HostAwake(self.instance(name).id, wake_s))

    def finish(self, attempt_id: str, **changes: Any) -> list[i.Instruction]:
        """The host of an attempt ends it; by default it succeeds with outputs in the report."""
        (instance,) = (x for x in self.instances if attempt_id in x.running)
        defaults: dict[str, Any] = {} if "failure" in changes else {"outputs": {}}
        return self.post(e.AttemptFinished(instance.id, attempt_id, **(defaults | changes)))

    def exit(self, instance_id: int, kind: str = "host-crashed") -> list[i.Instruction]:
        """A host is gone."""
        return self.post(e.HostExited(instance_id, FailureReport(kind, "the host ended")))

    # -- shortcuts -------------------------------------------------------------------------------

    def run(self, *assignments: Assignment) -> None:
        """Brings attempts into their hosts: what they need is here, and engines load at once."""
        self.desire(assign=assignments)
        for assignment in assignments:
            if assignment.attempt_id in self.agent.state.attempts:
                self.post(e.InputsReady(assignment.attempt_id))
        self.load_all()

    def open_idle(self, *signatures: str, **changes: Any) -> None:
        """Leaves loaded, idle instances of these signatures behind, a second apart."""
        for name in signatures:
            self.opened += 1
            one = assignment(f"opens-{self.opened}", name, **changes)
            self.run(one)
            self.finish(one.attempt_id)
            self.desire(acknowledged=(one.attempt_id,))
            self.now_s += 1

    def load_all(self) -> None:
        """Every host that is starting has loaded."""
        for instance in self.instances:
            if instance.state == "starting":
                self.load(instance.id)

    # -- what there is ---------------------------------------------------------------------------

    @property
    def instances(self) -> list[Instance]:
        """Engine instances."""
        return list(self.agent.state.instances.values())

    def instance(self, name: str) -> Instance:
        """The one of a signature."""
        return self.agent.state.instances[digest(name)]

    def loaded(self) -> list[str]:
        """Engines of the ready instances."""
        return [x.engine for x in self.instances if x.state == "ready"]

    def phase(self, attempt_id: str) -> str:
        """The phase that is reported of an attempt."""
        return self.agent.reports.progress[attempt_id].phase

    def end(self, attempt_id: str) -> AttemptEnd:
        """The end that is reported of an attempt."""
        return self.agent.reports.ended[attempt_id]

    def failure(self, attempt_id: str) -> str:
        """The kind of failure that it ended with; empty after a success."""
        failure = self.end(attempt_id).failure
        return failure.kind if failure is not None else ""


def assignment(attempt_id: str, name: str = "a", **changes: Any) -> Assignment:
    """An attempt of a signature; the engine is named like it."""
    defaults: dict[str, Any] = {
        "attempt_id": attempt_id,
        "action_id": digest(attempt_id),
        "signature": digest(name),
        "engine": name,
        "contract": 1,
        "implementation": 1,
        "params": {},
        "fields": {},
        "inputs": {},
        "memory_mib": 400,
    }
    return Assignment(**(defaults | changes))


def component(name: str) -> Artifact:
    """A model by its name."""
    return Artifact("model", digest(name), digest(f"manifest of {name}"))


def prewarm(name: str, *components: str, **changes: Any) -> PrewarmSpec:
    """An entry of the prewarm list."""
    defaults: dict[str, Any] = {
        "signature": digest(name),
        "engine": name,
        "contract": 1,
        "implementation": 1,
        "components": {f"port-{c}": component(c) for c in components},
        "memory_mib": 400,
    }
    return PrewarmSpec(**(defaults | changes))


def replica(name: str, number: int = 0, *components: str, **changes: Any) -> ServingReplica:
    """A replica whose engine is named like its service."""
    return ServingReplica(
        replica_id=f"team-a/{name}/llm/r1/{number}",
        service=f"team-a/{name}",
        component="llm",
        release="r1",
        opening=prewarm(name, *components, **changes),
    )


def of_type(kind: type[T], found: Iterable[object]) -> list[T]:
    """The instructions of a kind."""
    return [x for x in found if isinstance(x, kind)]
