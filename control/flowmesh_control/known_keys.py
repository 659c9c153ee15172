"""The keys below a prefix that FlowMesh wrote: what else lies there is passed over.

A stray file, such as a copy that somebody made by hand, must not keep the control plane from
starting. The log names it.
"""

import logging
import re

from flowmesh_control.run_keys import RUNS, spec_key
from flowmesh_store.keys import is_key
from flowmesh_store.ports import Records, RecordStore

log = logging.getLogger("flowmesh.control")

SHOWN = 10
"""Stray keys that the warning names."""
_NUMBERED = re.compile(r"[0-9]{8,}(-[0-9]{8,})?")
_DIGEST = re.compile(r"[0-9a-f]{64}")


async def numbered_keys(records: RecordStore, prefix: str) -> list[str]:
    """The keys ``<prefix><n>`` or ``<prefix><n>-<m>``, in order, as ``run_keys`` makes them."""
    return await _known(records, prefix, _NUMBERED)


async def digest_keys(records: RecordStore, prefix: str) -> list[str]:
    """The keys ``<prefix><digest>``, in order."""
    return await _known(records, prefix, _DIGEST)


async def run_uids(records: Records) -> list[str]:
    """The uids of all runs of which anything is stored, in order."""
    found: list[str] = []
    stray: list[str] = []
    async for uid in records.folders(RUNS):
        (found if is_key(spec_key(uid)) else stray).append(f"{RUNS}{uid}")
    _warn(RUNS, stray)
    return [key.removeprefix(RUNS) for key in found]


async def _known(records: RecordStore, prefix: str, name: re.Pattern[str]) -> list[str]:
    found: list[str] = []
    stray: list[str] = []
    async for key in records.keys(prefix):
        well_formed = name.fullmatch(key.removeprefix(prefix)) is not None
        (found if well_formed else stray).append(key)
    _warn(prefix, stray)
    return found


def _warn(prefix: str, stray: list[str]) -> None:
    if not stray:
        return
    more = f" and {len(stray) - SHOWN} more" if len(stray) > SHOWN else ""
    log.warning(
        "below %s of the store there is what FlowMesh did not write, and passes over: %s%s; "
        "remove it",
        prefix,
        ", ".join(repr(key)[:200] for key in stray[:SHOWN]),
        more,
    )
