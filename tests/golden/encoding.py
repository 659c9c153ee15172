"""Converts values of goldens to JSON and back, with the names of ``kinds``."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from math import inf
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from tests.golden.agent import kinds as agent
from tests.golden.kinds import COMMANDS
from tests.golden.kinds import FIELDS as OF_THE_MACHINE

from flowmesh_core.machine.commands import Command
from flowmesh_core.worker_agent.instructions import Instruction

FIELDS = {**OF_THE_MACHINE, **agent.FIELDS}
INFINITE = "inf"
"""JSON has no name for it."""

_canonical = msgspec.json.Encoder(order="sorted")


def plain(value: Any) -> Any:
    """Returns a value that msgspec can encode; dicts keep their order, sets are sorted."""
    if type(value) in FIELDS:
        pairs = zip(FIELDS[type(value)], _attributes(type(value)), strict=True)
        return {name: plain(getattr(value, attribute)) for name, attribute in pairs}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    return INFINITE if isinstance(value, float) and value == inf else value


def encode(value: Any) -> bytes:
    """Returns a value as JSON that :func:`decode` reads."""
    return msgspec.json.encode(plain(value))


def decode(data: bytes | msgspec.Raw, kind: Any) -> Any:
    """Returns a value of a class from JSON."""
    if kind in FIELDS:
        given = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        hints = _hints(kind)
        pairs = zip(FIELDS[kind], _attributes(kind), strict=True)
        return kind(**{a: decode(given[name], hints[a]) for name, a in pairs if name in given})
    if get_origin(kind) is tuple and get_args(kind)[0] in FIELDS:
        parts = msgspec.json.decode(data, type=list[msgspec.Raw])
        return tuple(decode(part, get_args(kind)[0]) for part in parts)
    if kind is float and bytes(data) == encode(INFINITE):
        return inf
    return msgspec.json.decode(data, type=kind)


def encode_commands(commands: Sequence[Command]) -> bytes:
    """Returns commands as canonical JSON: equal commands in equal order give equal bytes."""
    return _canonical.encode([[COMMANDS[type(one)], plain(one)] for one in commands])


def encode_instructions(instructions: Sequence[Instruction]) -> bytes:
    """Instructions of a worker agent as canonical JSON."""
    return _canonical.encode([[agent.INSTRUCTIONS[type(one)], plain(one)] for one in instructions])


@cache
def _attributes(kind: type) -> tuple[str, ...]:
    if dataclasses.is_dataclass(kind):
        return tuple(one.name for one in dataclasses.fields(kind))
    return tuple(one.name for one in msgspec.structs.fields(kind))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
