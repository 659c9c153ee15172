"""Reads what runs are pinned to: a part of their spec; of earlier releases a separate record.

Used when a run is recovered, audited, re-pinned, exported or traced.
"""

from collections.abc import Iterable

import msgspec

from flowmesh_control.records.keys import pins_key, spec_key
from flowmesh_control.records.run_records import PinsRecord, decode_record, pins_decoder
from flowmesh_core.accounting.ledger_lines import AmendmentLine, Line
from flowmesh_core.errors import DamagedRecordError
from flowmesh_core.machine.repin import PINS
from flowmesh_store.ports import RecordStore


async def accepted_pins(records: RecordStore, uid: str) -> PinsRecord | None:
    """Returns the pins with which a run was accepted; None where they are missing.

    Raises:
        DamagedRecordError: the record cannot be read.
    """
    key = spec_key(uid)
    spec = await records.read(key)
    pins = None if spec is None else decode_record(_decoder, key, spec.data).pins
    return pins or await _stored(records, pins_key(uid))


async def _stored(records: RecordStore, key: str) -> PinsRecord | None:
    record = await records.read(key)
    return None if record is None else decode_record(pins_decoder, key, record.data)


async def read_pins(records: RecordStore, uid: str, lines: Iterable[Line]) -> PinsRecord:
    """Returns what a run is pinned to now: the last re-pin in its ledger, else its first pins.

    Raises:
        DamagedRecordError: the record is missing, or cannot be read.
    """
    key = ""
    for line in lines:
        if isinstance(line, AmendmentLine):
            key = line.changes.get(PINS, key)
    if key:
        pins = await _stored(records, key)
    else:
        pins = await accepted_pins(records, uid)
    if pins is None:
        raise DamagedRecordError(
            key or pins_key(uid),
            "it is missing, though the run's spec is there",
            remedy=f"restore the object, or delete everything under runs/{uid}/",
        )
    return pins


class _Pinned(msgspec.Struct, frozen=True):
    """The pins in a spec."""

    pins: PinsRecord | None = None


_decoder = msgspec.json.Decoder(_Pinned)
