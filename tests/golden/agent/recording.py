"""Records what the worker agent is given in a scenario and what it answers, and plays it again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from tests.golden.agent.format import ASLEEP_DEVICE_MIB, Scenario
from tests.golden.agent.kinds import EVENTS, FULL_REPORT, START, SYNC
from tests.golden.agent.scenarios import all_scenarios, new_scenarios
from tests.golden.agent.virtual.worker import VirtualWorker
from tests.golden.agent.virtual.world import WALL_S, Facts, NoEnergy, NoFetchCounter, World
from tests.golden.encoding import decode, encode, encode_instructions, plain
from tests.golden.recording import Line, read_golden, write_golden
from tests.golden.replaying import indented

from flowmesh_core.protocol.messages import Component, Sync
from flowmesh_core.worker_agent.events import Event
from flowmesh_core.worker_agent.instructions import Instruction
from flowmesh_core.worker_agent.machine import AgentSettings, FullReport, WorkerAgent

FOLDER = Path(__file__).parent / "recorded"
GOLDENS = {
    "checkpoints-of-a-drain": "A worker that stops asks for checkpoints, and again at half of the "
    "grace period",
    "cancelled-in-each-phase": "An attempt is cancelled in whatever phase it is",
    "engines-asleep": "Engines take turns: each falls asleep for the other, and those that cannot "
    "are ended",
    "hosts-that-are-killed": "A host is ended that uses too much memory, stands still, or is "
    "killed by the kernel",
    "hosts-that-do-not-load": "A load that fails, a host that crashes as it loads, and one that "
    "does not start",
    "inputs-that-fail": "Inputs that cannot be fetched fail their attempt by what is wrong with "
    "them",
    "least-recently-used": "Where memory is short, the idle instance that was used least recently "
    "is closed",
    "prewarms-in-order": "The prewarm list is fetched in its order, and an entry that fails holds "
    "up no other",
    "prewarms-that-fail": "A prewarm that fails is not tried again until its entry changes or work "
    "opens it",
    "replicas-of-services": "Replicas are loaded and kept while attempts, their hosts and the hub "
    "come and go",
    "reported-again": "Ends are reported again every 30 s and after a reconnection until "
    "acknowledged",
    "revoked-components": "Hosts that have a revoked component are ended, whatever they do",
    "standby-hosts-that-fail": "A preload that fails is not tried again, and one standby host is "
    "begun at a time",
    "timeouts": "An attempt that runs longer than its timeout ends as timed out",
    "world-5": "Random world 5 is compared",
    "world-31": "Random world 31 is compared",
    "world-38": "Random world 38 is compared",
}
"""The scenario of each golden."""
_CLASSES = {kind: of for of, kind in EVENTS.items()}
_canonical = msgspec.json.Encoder(order="sorted")


def record(name: str) -> list[Line]:
    """Plays the scenario of a golden; returns its lines."""
    scenario = next(
        one for one in (*all_scenarios(), *new_scenarios()) if one.name == GOLDENS[name]
    )
    worker = VirtualWorker(scenario)
    lines = [Line(0.0, START, msgspec.Raw(msgspec.json.encode(scenario)), msgspec.Raw(b"[]"))]
    _listen(worker.agent, lines)
    worker.play()
    return lines


def write_goldens() -> dict[str, int]:
    """Records all goldens anew; returns the number of lines of each."""
    FOLDER.mkdir(exist_ok=True)
    counts = {}
    for name in GOLDENS:
        lines = record(name)
        write_golden(name, lines, FOLDER)
        counts[name] = len(lines)
    return counts


def golden(name: str) -> list[Line]:
    """Reads a golden."""
    return read_golden(name, FOLDER)


def replay(lines: list[Line]) -> None:
    """Gives the events of a golden to an agent of today.

    Raises:
        AssertionError: it answers otherwise than when the golden was recorded; the message has the
            first event of which that is so, and both answers.
    """
    agent = _agent(msgspec.json.decode(lines[0].event, type=Scenario))
    for number, line in enumerate(lines[1:], start=2):
        answer = _answer(agent, line)
        recorded = bytes(line.commands)
        if answer != recorded:
            raise AssertionError(
                f"line {number}, {line.kind} at {line.t}: another answer than recorded\n"
                f"{bytes(line.event).decode()}\n"
                f"as recorded:\n{indented(recorded)}\nnow:\n{indented(answer)}"
            )


def _agent(scenario: Scenario) -> WorkerAgent:
    settings = AgentSettings(
        memory_mib=scenario.memory_mib,
        devices=scenario.devices,
        device_mib=scenario.device_mib,
        grace_s=scenario.grace_s,
        serves=scenario.hub_start_s is not None,
        sleep_mib=scenario.sleep_mib,
        asleep_device_mib=ASLEEP_DEVICE_MIB,
    )
    return WorkerAgent(settings, Facts(World(scenario)), NoEnergy(), NoFetchCounter())


def _answer(agent: WorkerAgent, line: Line) -> bytes:
    if line.kind == FULL_REPORT:
        return _report(agent.full_report(line.t))
    if line.kind == SYNC:
        components = msgspec.json.decode(line.event, type=tuple[Component, ...])
        return _report(agent.next_sync(1, line.t, lambda: components))
    event: Event = decode(line.event, _CLASSES[line.kind])
    return encode_instructions(agent.apply(event, line.t, WALL_S + line.t))


def _listen(agent: WorkerAgent, lines: list[Line]) -> None:
    """Adds a line for each call of an agent from now on."""
    apply, full_report, next_sync = agent.apply, agent.full_report, agent.next_sync

    def add(now_s: float, kind: str, event: bytes, answer: bytes) -> None:
        lines.append(Line(now_s, kind, msgspec.Raw(event), msgspec.Raw(answer)))

    def applied(event: Event, now_s: float, wall_s: float) -> list[Instruction]:
        found = apply(event, now_s, wall_s)
        data = encode(event)
        if decode(data, type(event)) != event:
            raise ValueError(f"not what it was after it was written and read: {event}")
        add(now_s, EVENTS[type(event)], data, encode_instructions(found))
        return found

    def reported(now_s: float) -> FullReport:
        full = full_report(now_s)
        add(now_s, FULL_REPORT, b"[]", _report(full))
        return full

    def synced(seq: int, now_s: float, components: Callable[[], tuple[Component, ...]]) -> Sync:
        sync = next_sync(1, now_s, components)
        add(now_s, SYNC, msgspec.json.encode(components()), _report(sync))
        return sync

    vars(agent).update(apply=applied, full_report=reported, next_sync=synced)


def _report(report: Any) -> bytes:
    return _canonical.encode([msgspec.to_builtins(plain(report))])
