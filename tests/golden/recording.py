"""Records events and commands of machines as the lines of a golden."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa
from tests.golden.encoding import decode, encode, encode_commands
from tests.golden.kinds import EVENTS, START, Start

from flowmesh_core.accounting.fabric_account import FabricAccount
from flowmesh_core.costmodel.state import encode_model
from flowmesh_core.machine.commands import Command
from flowmesh_core.machine.events import Event
from flowmesh_core.machine.machine import Machine

GOLDENS = Path(__file__).parent / "machine"
SUFFIX = ".jsonl.zst"
_CODEC = "zstd"
_LEVEL = 19


class Line(msgspec.Struct):
    """A line of a golden.

    Attributes:
        t: the machine's clock, in seconds.
        kind: of the event: a value of ``EVENTS``, or ``START``.
        event: its content; ``encoding.decode`` reads it.
        commands: the machine's answer as canonical JSON. It is kept whole and not as a hash, so
            that a difference can be shown; compressed it is mostly in the events already.
    """

    t: float
    kind: str
    event: msgspec.Raw
    commands: msgspec.Raw


class Tape:
    """Collects the lines of a recording."""

    def __init__(self, catalog: str) -> None:
        """Starts empty; ``catalog`` is the name of the machines' engines."""
        self.lines: list[Line] = []
        self._catalog = catalog

    def start(self, given: Mapping[str, Any]) -> None:
        """Records the start of a machine; ``given`` are the arguments of its constructor."""
        start = Start(
            epoch=given["epoch"],
            catalog=self._catalog,
            settings=given["settings"],
            model=encode_model(given["model"]).decode(),
            book=given.get("book") or FabricAccount(),
            billed=given.get("billed") or {},
            unsettled=given.get("unsettled") or {},
            paid=given.get("paid") or {},
            recovering_until_s=given.get("recovering_until_s", 0.0),
        )
        self._add(0.0, START, start, [])

    def applied(self, event: Event, now_s: float, commands: list[Command]) -> None:
        """Records an event that a machine has applied."""
        self._add(now_s, EVENTS[type(event)], event, commands)

    def _add(self, now_s: float, kind: str, what: Any, commands: list[Command]) -> None:
        data = encode(what)
        if decode(data, type(what)) != what:
            raise ValueError(f"not what it was after it was written and read: {what}")
        answer = msgspec.Raw(encode_commands(commands))
        self.lines.append(Line(now_s, kind, msgspec.Raw(data), answer))


@contextmanager
def recorded(catalog: str) -> Iterator[Tape]:
    """Records every machine that is used during the block."""
    tape, made, applied = Tape(catalog), Machine.__init__, Machine.apply

    def init(self: Machine, **given: Any) -> None:
        tape.start(given)
        made(self, **given)

    def apply(self: Machine, event: Event, now_s: float) -> list[Command]:
        commands = applied(self, event, now_s)
        tape.applied(event, now_s, commands)
        return commands

    with patch.object(Machine, "__init__", init), patch.object(Machine, "apply", apply):
        yield tape


def write_golden(name: str, lines: list[Line], folder: Path = GOLDENS) -> None:
    """Writes a golden."""
    data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    packed = pa.Codec(_CODEC, compression_level=_LEVEL).compress(data, asbytes=True)
    (folder / f"{name}{SUFFIX}").write_bytes(packed)


def read_golden(name: str, folder: Path = GOLDENS) -> list[Line]:
    """Reads a golden."""
    with pa.input_stream(str(folder / f"{name}{SUFFIX}"), compression=_CODEC) as stream:
        data = stream.read()
    decoder = msgspec.json.Decoder(Line)
    return [decoder.decode(line) for line in data.splitlines()]
