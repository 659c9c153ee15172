"""Which runs each leader took up: by that the next one knows whose word on a run's end counts.

``taken/<epoch>`` is written before any of these runs is opened. What an earlier leader still said
of one of them afterwards, frozen and thawed, is void (``ended_index``).
"""

from collections.abc import Sequence

import msgspec

from flowmesh_control.known_keys import known_keys
from flowmesh_control.run_keys import TAKEN, parse_epoch, taken_key
from flowmesh_store.batches import in_batches
from flowmesh_store.ports import RecordStore


async def write_taken(records: RecordStore, *, epoch: int, uids: Sequence[str]) -> None:
    """Says which runs the leader of this epoch opens next; once an epoch."""
    if uids:
        await records.write(taken_key(epoch), msgspec.json.encode(uids))


async def read_taken(records: RecordStore) -> dict[str, int]:
    """The last epoch that took up each run; runs that nobody took over have none."""
    found: dict[str, int] = {}
    keys = known_keys(records, TAKEN, parse_epoch)
    async for (_, epoch), record in in_batches(keys, lambda key: records.read(key[0])):
        if record is not None:
            found.update(dict.fromkeys(_decoder.decode(record.data), epoch))
    return found


_decoder = msgspec.json.Decoder(list[str])
