"""Reads what runs are pinned to: a part of their spec; of earlier releases a separate record.

Used when a run is recovered, audited, re-pinned, exported or traced. A plan of a higher level than
this release runs is not decoded: a field that is dropped would change what it means.
"""

from collections.abc import Iterable

import msgspec

from flowmesh_control.errors import NewerPlanError, NotFoundError
from flowmesh_control.records.keys import pins_key, spec_key
from flowmesh_control.records.run_records import PinsRecord, decode_record, pins_decoder
from flowmesh_core.accounting.ledger_lines import AmendmentLine, Line
from flowmesh_core.errors import DamagedRecordError
from flowmesh_core.graph.plan import PLAN_LEVEL
from flowmesh_core.machine.repin import PINS
from flowmesh_store.ports import Record, RecordStore


class _Level(msgspec.Struct, frozen=True):
    """What is decoded of pins before the rest."""

    level: int = 1


class _SpecLevel(msgspec.Struct, frozen=True):
    """The same of the pins in a spec."""

    pins: _Level | None = None


class _Pinned(msgspec.Struct, frozen=True):
    """The pins in a spec."""

    pins: PinsRecord | None = None


async def accepted_pins(records: RecordStore, uid: str) -> PinsRecord | None:
    """Returns the pins with which a run was accepted; None where they are missing.

    Raises:
        DamagedRecordError: the record cannot be read.
        NewerPlanError: only a newer release can read it.
    """
    spec = await records.read(spec_key(uid))
    pins = None if spec is None else pins_in(uid, spec)
    return await _stored(records, uid, pins_key(uid)) if pins is None else pins


async def require_pins(records: RecordStore, uid: str) -> PinsRecord:
    """As :func:`accepted_pins`.

    Raises:
        NotFoundError: they are missing.
    """
    pins = await accepted_pins(records, uid)
    if pins is None:
        raise NotFoundError(f"the pins of run {uid!r} are not stored", where=spec_key(uid))
    return pins


def pins_in(uid: str, spec: Record) -> PinsRecord | None:
    """Returns the pins in a run's spec; None where an earlier release wrote them elsewhere.

    Raises:
        DamagedRecordError: the record cannot be read.
        NewerPlanError: only a newer release can read it.
    """
    key = spec_key(uid)
    _check_level(decode_record(_spec_level_decoder, key, spec).pins, uid)
    return decode_record(_decoder, key, spec).pins


async def read_pins(records: RecordStore, uid: str, lines: Iterable[Line]) -> PinsRecord:
    """Returns what a run is pinned to now: the last re-pin in its ledger, else its first pins.

    Raises:
        DamagedRecordError: the record is missing, or cannot be read.
        NewerPlanError: only a newer release can read it.
    """
    key = ""
    for line in lines:
        if isinstance(line, AmendmentLine):
            key = line.changes.get(PINS, key)
    pins = await (_stored(records, uid, key) if key else accepted_pins(records, uid))
    if pins is None:
        raise DamagedRecordError(
            key or pins_key(uid),
            "it is missing, though the run's spec is there",
            remedy=f"restore the object, or delete everything under runs/{uid}/",
        )
    return pins


async def _stored(records: RecordStore, uid: str, key: str) -> PinsRecord | None:
    record = await records.read(key)
    if record is None:
        return None
    _check_level(decode_record(_level_decoder, key, record), uid)
    return decode_record(pins_decoder, key, record)


def _check_level(pins: _Level | None, uid: str) -> None:
    """Checks that this release runs plans of this level."""
    if pins is not None and pins.level > PLAN_LEVEL:
        raise NewerPlanError(
            f"its plan has level {pins.level}; this release runs plans up to level {PLAN_LEVEL}",
            where=f"runs/{uid}",
            remedy="start the newer release again, or cancel the run",
        )


_level_decoder = msgspec.json.Decoder(_Level)
_spec_level_decoder = msgspec.json.Decoder(_SpecLevel)
_decoder = msgspec.json.Decoder(_Pinned)
