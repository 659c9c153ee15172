"""``keys/current``: which master keys the records of this store are sealed with.

Compared with the key ring before anything else is written, so that a lost or replaced key is
noticed at once instead of making every record unreadable. It holds a MAC by each key, not the keys.
The record itself is not sealed: whoever can forge it can also delete the records.
"""

import hmac
import logging
from collections.abc import Mapping

import msgspec
from blake3 import blake3

from flowmesh_control.records.epochs import last_epoch
from flowmesh_control.records.keys import CURRENT_KEYS, epoch_key
from flowmesh_core.decoding import decode
from flowmesh_core.errors import ConditionFailedError, DamagedRecordError, FlowMeshError
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_core.sharing.seals import SealError, Seals, UnknownKeyError
from flowmesh_store.ports import RecordStore

log = logging.getLogger("flowmesh.control")

_CONTEXT = "flowmesh.dev 2 current keys"
_CONSTANT = b"flowmesh keys/current"
_REMEDY = "restore it, or accept the loss of all results and runs: fmesh keys adopt --lose-results"
_ROUNDS = 16


class LostKeyError(FlowMeshError):
    """The store's records are sealed with a key that the key ring does not have."""


class CurrentKeys(msgspec.Struct, frozen=True):
    """``keys/current``.

    Attributes:
        newest: the key that seals new records.
        keys: by id, a MAC of a constant.
        retired: ids of former keys; records sealed with them count as not sealed.
    """

    newest: str
    keys: Mapping[str, str]
    retired: tuple[str, ...] = ()


async def check_keys(records: RecordStore, ring: KeyRing) -> CurrentKeys:
    """Compares the store's keys with the ring, and adds the ring's new keys.

    Args:
        records: of the store, without the check of seals.
        ring: of this control plane.

    Raises:
        LostKeyError: the ring lacks a key, or has another one under its id.
    """
    for _ in range(_ROUNDS):
        stored, etag = await _read(records)
        if stored is None:
            await _check_first_start(records, ring)
            stored = CurrentKeys("", {})
        _check_ring(stored, ring)
        wanted = _of_ring(ring, stored.retired)
        if wanted == stored or await _write(records, wanted, etag):
            return wanted
    raise ConditionFailedError("it changes all the time", where=CURRENT_KEYS)


async def read_keys(records: RecordStore, ring: KeyRing) -> CurrentKeys:
    """As :func:`check_keys`, for a store that is only read."""
    stored, _ = await _read(records)
    if stored is None:
        return _of_ring(ring, ())
    _check_ring(stored, ring)
    return stored


async def adopt_keys(records: RecordStore, ring: KeyRing) -> tuple[str, ...]:
    """Makes the ring's keys the store's, and retires those that it lacks.

    What is sealed with a retired key is lost: results are computed again, runs cannot be read.

    Returns:
        The ids of the keys that were retired or replaced.
    """
    stored, etag = await _read(records)
    wanted = _of_ring(ring, () if stored is None else stored.retired)
    if stored is not None:
        lost = tuple(sorted(i for i, mac in stored.keys.items() if wanted.keys.get(i) != mac))
    else:
        lost = ()
    retired = sorted({*wanted.retired, *lost} - wanted.keys.keys())
    wanted = msgspec.structs.replace(wanted, retired=tuple(retired))
    if not await _write(records, wanted, etag):
        raise ConditionFailedError("a control plane has just changed it", where=CURRENT_KEYS)
    return lost


async def retire_key(records: RecordStore, ring: KeyRing, key_id: str) -> None:
    """Marks a key as retired: the next start does without it."""
    stored, etag = await _read(records)
    current = stored or _of_ring(ring, ())
    kept = {i: mac for i, mac in current.keys.items() if i != key_id}
    retired = tuple(sorted({*current.retired, key_id}))
    wanted = msgspec.structs.replace(current, keys=kept, retired=retired)
    if not await _write(records, wanted, etag):
        raise ConditionFailedError("another control plane has just changed it", where=CURRENT_KEYS)


def _of_ring(ring: KeyRing, retired: tuple[str, ...]) -> CurrentKeys:
    derived = ring.derive(_CONTEXT)
    macs = {i: blake3(_CONSTANT, key=key).hexdigest(length=16) for i, key in derived.by_id.items()}
    return CurrentKeys(derived.newest_id, macs, tuple(i for i in retired if i not in macs))


def _check_ring(stored: CurrentKeys, ring: KeyRing) -> None:
    ours = _of_ring(ring, ()).keys
    for key_id, mac in stored.keys.items():
        if key_id not in ours:
            reason = f"records of this store are sealed with master key {key_id}, which is missing"
        elif not hmac.compare_digest(ours[key_id], mac):
            reason = f"master key {key_id} is not the one that this store's records are sealed with"
        else:
            continue
        raise LostKeyError(reason, where=CURRENT_KEYS, remedy=_REMEDY)


async def _check_first_start(records: RecordStore, ring: KeyRing) -> None:
    """Checks that a store without ``keys/current`` is new, or sealed with this ring."""
    last = await last_epoch(records)
    if not last:
        return
    key = epoch_key(last)
    record = await records.read(key)
    try:
        if record is not None:
            Seals(ring).open(key, record.data)
            log.warning("%s was missing and is written again", CURRENT_KEYS)
    except (SealError, UnknownKeyError) as e:
        raise LostKeyError(
            f"the records of this store are not sealed with this master key: {e.message}",
            where=key,
            remedy="an older release may have written it: use another store, or accept the loss of"
            " all results and runs: fmesh keys adopt --lose-results",
        ) from e


async def _read(records: RecordStore) -> tuple[CurrentKeys | None, str | None]:
    record = await records.read(CURRENT_KEYS)
    if record is None:
        return None, None
    try:
        return decode(_decoder, record.data), record.etag
    except msgspec.DecodeError as e:
        remedy = "delete the object, if the master key is there: it is written again"
        raise DamagedRecordError(CURRENT_KEYS, str(e), remedy=remedy) from e


async def _write(records: RecordStore, wanted: CurrentKeys, etag: str | None) -> bool:
    try:
        await records.write(CURRENT_KEYS, msgspec.json.encode(wanted), if_match=etag)
    except ConditionFailedError:
        return False
    return True


_decoder = msgspec.json.Decoder(CurrentKeys)
