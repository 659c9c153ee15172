"""What runs are pinned to: a part of their spec, or a record of its own of earlier releases.

Read when a run is taken up again, audited, re-pinned, exported or traced.
"""

from collections.abc import Iterable

import msgspec

from flowmesh_control.run_keys import pins_key, spec_key
from flowmesh_control.run_records import PinsRecord, pins_decoder
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.run.ledger import AmendmentLine, Line
from flowmesh_core.run.repinning import PINS
from flowmesh_store.ports import RecordStore


async def accepted_pins(records: RecordStore, uid: str) -> PinsRecord | None:
    """What a run was compiled to when it was accepted; None where that is gone."""
    spec = await records.read(spec_key(uid))
    if spec is not None and (pins := _decoder.decode(spec.data).pins) is not None:
        return pins
    record = await records.read(pins_key(uid))
    return None if record is None else pins_decoder.decode(record.data)


async def read_pins(records: RecordStore, uid: str, lines: Iterable[Line]) -> PinsRecord:
    """What a run is pinned to, by its ledger.

    Raises:
        FlowMeshError: the record is missing.
    """
    key = ""
    for line in lines:
        if isinstance(line, AmendmentLine):
            key = line.changes.get(PINS, key)
    if key:
        record = await records.read(key)
        pins = None if record is None else pins_decoder.decode(record.data)
    else:
        pins = await accepted_pins(records, uid)
    if pins is None:
        raise FlowMeshError(
            "the run's pins are missing, though its spec is there",
            where=key or pins_key(uid),
            remedy=f"restore the object, or delete everything under runs/{uid}/",
        )
    return pins


class _Pinned(msgspec.Struct, frozen=True):
    """A spec as far as it says the pins."""

    pins: PinsRecord | None = None


_decoder = msgspec.json.Decoder(_Pinned)
