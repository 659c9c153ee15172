"""Records which run or worker a control plane was working on when it died (ADR 29).

``suspects/runs/<uid>`` and ``suspects/workers/<name>`` count these deaths over all pods and epochs.
A process records the death of its predecessor in the same place as soon as it starts, also where it
does not lead. A run that is named twice is suspended until an administrator resumes it.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from flowmesh_control.loop.current_event import CurrentEvent, clear_marker, read_marker
from flowmesh_control.records.keys import SUSPECT_RUNS, SUSPECT_WORKERS
from flowmesh_control.records.overwrite import overwrite
from flowmesh_control.records.run_records import decode_record
from flowmesh_core.errors import DamagedRecordError
from flowmesh_store.batched_requests import in_batches
from flowmesh_store.keys import is_key
from flowmesh_store.ports import RecordStore

log = logging.getLogger("flowmesh.control")

DEATHS_MAX = 2
"""Deaths of a control plane that suspend a run, or refuse a worker."""
CONTROL_PLANE_STOPPED = "control-plane-stopped"
"""The reason of a run that is suspended for them."""


class Death(msgspec.Struct, frozen=True):
    """The death of the leader of an epoch, in an event of some kind."""

    epoch: int
    event: str


class SuspectRecord(msgspec.Struct, frozen=True):
    """The deaths of control planes that worked on one run or worker, one an epoch."""

    deaths: tuple[Death, ...] = ()


async def record_last_death(records: RecordStore, folder: Path) -> None:
    """Records what the last control plane on this folder was working on, if it died of it.

    Raises:
        StoreError: nothing is recorded; the marker stays for the next start.
    """
    found = read_marker(folder)
    if found is None:
        return
    name = found.run or found.worker
    key = f"{SUSPECT_RUNS if found.run else SUSPECT_WORKERS}{name}"
    log.warning(
        "the control plane of epoch %d died in event %d (%s%s)",
        found.epoch,
        found.number,
        found.kind,
        f" of {name}" if name else "",
    )
    if name and is_key(key):
        await _add(records, key, found)
    clear_marker(folder)


async def read_suspects(records: RecordStore, prefix: str) -> Mapping[str, int]:
    """Returns how often each run or worker was named.

    Args:
        records: of the store.
        prefix: ``SUSPECT_RUNS`` or ``SUSPECT_WORKERS``.
    """
    found = {}
    async for key, record in in_batches(records.keys(prefix), records.read):
        if record is None:
            continue
        try:
            deaths = decode_record(_decoder, key, record).deaths
        except DamagedRecordError as e:
            log.warning("a death of the control plane is not counted: %s", e)
            continue
        found[key.removeprefix(prefix)] = len(deaths)
    return found


async def forget_deaths(records: RecordStore, uid: str) -> None:
    """Forgets the deaths that were counted for a run, because it is resumed.

    Raises:
        StoreError: they still count.
    """
    await overwrite(records, f"{SUSPECT_RUNS}{uid}", msgspec.json.encode(SuspectRecord()))


async def _add(records: RecordStore, key: str, found: CurrentEvent) -> None:
    there = await records.read(key)
    try:
        known = () if there is None else decode_record(_decoder, key, there).deaths
    except DamagedRecordError:
        known = ()
    if all(death.epoch != found.epoch for death in known):
        deaths = (*known, Death(found.epoch, found.kind))
        await overwrite(records, key, msgspec.json.encode(SuspectRecord(deaths)))


_decoder = msgspec.json.Decoder(SuspectRecord)
