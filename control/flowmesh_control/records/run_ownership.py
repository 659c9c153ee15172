"""Which runs each leader took up: by that the next one knows whose word on a run's end counts.

``taken/<epoch>`` is written before any of these runs is opened. What an earlier leader still said
of one of them afterwards, frozen and thawed, is void (``ended_index``).
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import msgspec

from flowmesh_control.records.keys import TAKEN, parse_epoch, taken_key
from flowmesh_control.records.known_keys import known_keys
from flowmesh_control.records.run_records import decode_record
from flowmesh_core.errors import DamagedRecordError
from flowmesh_store.batched_requests import in_batches
from flowmesh_store.ports import RecordStore

log = logging.getLogger("flowmesh.control")


async def write_taken(records: RecordStore, *, epoch: int, uids: Sequence[str]) -> None:
    """Says which runs the leader of this epoch opens next; once an epoch."""
    if uids:
        await records.write(taken_key(epoch), msgspec.json.encode(uids))


async def read_taken(records: RecordStore) -> defaultdict[str, int]:
    """The last epoch that took up each run; runs that nobody took over have none.

    A record that cannot be read may name any run: then all count as taken up by that epoch.
    """
    found: defaultdict[str, int] = defaultdict(int)
    keys = known_keys(records, TAKEN, parse_epoch)
    async for (key, epoch), record in in_batches(keys, lambda known: records.read(known[0])):
        if record is None:
            continue
        try:
            uids = decode_record(_decoder, key, record.data)
            found.update(dict.fromkeys(uids, epoch))
        except DamagedRecordError as e:
            log.warning("%s; every run before it is read whole", e)
            found = defaultdict(partial(int, epoch), dict.fromkeys(found, epoch))
    return found


_decoder = msgspec.json.Decoder(list[str])
