"""Replays the events of a golden on the current machine."""

import json
from collections.abc import Callable, Mapping

import msgspec
from tests.flowmesh_core.machine.world import CONTRACTS
from tests.golden.encoding import decode, encode, encode_commands
from tests.golden.kinds import EVENTS, START, Start
from tests.golden.recording import Line

from flowmesh_core.catalog.builtin import contracts
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.costmodel.state import decode_model
from flowmesh_core.machine.commands import Command
from flowmesh_core.machine.events import Event, PlacementDecided, PrewarmPlanChanged
from flowmesh_core.machine.machine import Machine
from flowmesh_core.machine.prewarm import forecast_demand
from flowmesh_core.placement.decide import decide

CATALOGS: Mapping[str, Callable[[], Catalog]] = {
    "builtin": lambda: Catalog(contracts()),
    "world": lambda: Catalog(CONTRACTS),
}
"""By the name in a golden: the engines of its machines."""

_CLASSES = {kind: of for of, kind in EVENTS.items()}


def machine_of(start: Start) -> Machine:
    """Returns a machine in the initial state of a golden."""
    return Machine(
        epoch=start.epoch,
        catalog=CATALOGS[start.catalog](),
        settings=start.settings,
        model=decode_model(start.model.encode()),
        book=start.book,
        billed=start.billed,
        unsettled=start.unsettled,
        paid=start.paid,
        recovering_until_s=start.recovering_until_s,
    )


def start_of(line: Line) -> Start:
    """Returns the initial state of a machine."""
    start = decode(line.event, Start)
    assert isinstance(start, Start)
    return start


def event_of(line: Line) -> Event:
    """Returns the event of a line."""
    event: Event = decode(line.event, _CLASSES[line.kind])
    return event


class Replay:
    """The replay of a golden on the current machine."""

    def __init__(self, lines: list[Line]) -> None:
        """Starts without a machine; the first line creates one."""
        self._lines = lines
        self._number = 0
        self._machine: Machine | None = None

    def step(self) -> tuple[Event, list[Command]] | None:
        """Applies the next event; returns None if the line starts a machine.

        Raises:
            AssertionError: today's scheduler decides otherwise, or today's machine answers
                otherwise, than when the golden was recorded.
        """
        line = self._lines[self._number]
        self._number += 1
        if line.kind == START:
            self._machine = machine_of(start_of(line))
            return None
        machine = self._machine
        assert machine is not None, "a golden begins with a machine"
        event = event_of(line)
        if isinstance(event, PrewarmPlanChanged):
            # The choice of engines to prewarm needs them.
            forecast_demand(machine.state, line.t)
        if isinstance(event, PlacementDecided):
            decision = decide(machine.snapshot(line.t), machine.state.model)
            now = encode(PlacementDecided(decision))
            if now != bytes(line.event):
                raise AssertionError(self._story(line, "decision", bytes(line.event), now))
        commands = machine.apply(event, line.t)
        answer = encode_commands(commands)
        if answer != bytes(line.commands):
            raise AssertionError(self._story(line, "commands", bytes(line.commands), answer))
        return event, commands

    def _story(self, line: Line, what: str, recorded: bytes, now: bytes) -> str:
        event = indented(bytes(line.event)) if what == "commands" else ""
        return (
            f"line {self._number}, {line.kind} at {line.t}: other {what} than recorded\n{event}\n"
            f"{what} as recorded:\n{indented(recorded)}\n{what} now:\n{indented(now)}"
        )


def indented(data: bytes) -> str:
    """Formats JSON for people: one command per line, or one field of a struct per line."""
    value = msgspec.json.decode(data)
    parts = value if isinstance(value, list) else [{k: v} for k, v in value.items()]
    return "\n".join(f"  {json.dumps(part)}" for part in parts) or "  none"
