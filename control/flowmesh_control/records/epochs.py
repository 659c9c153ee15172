"""Leadership as a sequence of records: creating ``epochs/<n>`` makes a control plane the leader.

It leads until another one creates ``epochs/<n+1>``. Creation is conditional, so each epoch has one
owner. The keys of records that are not write-once contain the epoch; a leader that finds a later
epoch stops.
"""

import secrets

import orjson

from flowmesh_control.records.keys import EPOCHS, epoch_key, parse_epoch
from flowmesh_control.records.known_keys import known_keys
from flowmesh_core.errors import ConditionFailedError, FlowMeshError
from flowmesh_store.ports import RecordStore


class SupersededError(FlowMeshError):
    """Another control plane leads now; this one must stop."""

    def __init__(self, epoch: int, later: int) -> None:
        super().__init__(
            f"epoch {later} was begun by another control plane; this one led epoch {epoch}",
            where="epochs",
            remedy="it has stopped and published nothing since; use the other one",
        )


async def last_epoch(records: RecordStore) -> int:
    """Returns the number of the latest leadership; 0 where there never was one."""
    return max([n async for _, n in known_keys(records, EPOCHS, parse_epoch)], default=0)


async def begin_epoch(records: RecordStore, *, owner: str, now_s: float) -> int:
    """Creates the next epoch, which makes the caller the leader.

    Returns:
        Its number, from 1.
    """
    last = await last_epoch(records)
    # With a nonce, because a bucket counts equal bytes as written, and only one leader may win.
    content = orjson.dumps({"owner": owner, "time_s": now_s, "nonce": secrets.token_hex(16)})
    while True:
        last += 1
        try:
            await records.write(epoch_key(last), content)
        except ConditionFailedError:
            continue
        return last


async def check_leads(records: RecordStore, epoch: int) -> None:
    """Checks that no later epoch has begun.

    Raises:
        SupersededError: one has.
        StoreUnavailableError: the store did not answer.
    """
    later = await records.read(epoch_key(epoch + 1))
    # A later leader may have a newer master key than this one.
    if later is not None and not later.is_foreign:
        raise SupersededError(epoch, epoch + 1)
