"""Records which epoch owns which run, so that an end from an older epoch is ignored.

A leader writes ``taken/<epoch>`` with the runs that it recovers, before it opens the first of them.
A line in the index of ended runs that an earlier leader writes for one of them afterwards, because
it was frozen and thawed, is then void. ``ended_index`` lists what such a leader may still write.
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
    """Records which runs the leader of this epoch is about to open; once per epoch."""
    if uids:
        await records.write(taken_key(epoch), msgspec.json.encode(uids))


async def read_taken(records: RecordStore) -> defaultdict[str, int]:
    """Returns the last epoch that recovered each run; 0 for runs that were never recovered.

    An unreadable record may name any run, so all runs then count as recovered by its epoch.
    """
    found: defaultdict[str, int] = defaultdict(int)
    keys = known_keys(records, TAKEN, parse_epoch)
    async for (key, epoch), record in in_batches(keys, lambda known: records.read(known[0])):
        if record is None:
            continue
        try:
            uids = decode_record(_decoder, key, record)
            found.update(dict.fromkeys(uids, epoch))
        except DamagedRecordError as e:
            log.warning("%s; every run before it is read whole", e)
            found = defaultdict(partial(int, epoch), dict.fromkeys(found, epoch))
    return found


_decoder = msgspec.json.Decoder(list[str])
