"""The keys below a prefix that FlowMesh wrote: what else lies there is passed over.

A stray file, such as a copy that somebody made by hand, must end neither a start nor a query. The
log names it.
"""

import logging
import re
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from flowmesh_control.records.keys import RUNS, spec_key
from flowmesh_store.keys import is_key
from flowmesh_store.ports import Records, RecordStore

log = logging.getLogger("flowmesh.control")

SHOWN = 10
"""Stray keys that the warning names."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_Parsed = TypeVar("_Parsed")


async def known_keys(
    records: RecordStore, prefix: str, parse: Callable[[str], _Parsed | None]
) -> AsyncIterator[tuple[str, _Parsed]]:
    """The keys below a prefix in order, each with what it says.

    Args:
        records: where to look.
        prefix: ends in a slash.
        parse: what a key says; None for one that has not the form of a key of this prefix. Those
            are skipped, with one warning that names the first of them.
    """
    stray: list[str] = []
    async for key in records.keys(prefix):
        parsed = parse(key)
        if parsed is None:
            stray.append(key)
        else:
            yield key, parsed
    _warn(prefix, stray)


async def digest_keys(records: RecordStore, prefix: str) -> list[str]:
    """The keys ``<prefix><digest>``, in order."""
    return [
        key
        async for key, _ in known_keys(
            records, prefix, lambda key: _DIGEST.fullmatch(key.removeprefix(prefix))
        )
    ]


async def run_uids(records: Records) -> list[str]:
    """The uids of all runs of which anything is stored, in order."""
    found: list[str] = []
    stray: list[str] = []
    async for uid in records.folders(RUNS):
        (found if is_key(spec_key(uid)) else stray).append(f"{RUNS}{uid}")
    _warn(RUNS, stray)
    return [key.removeprefix(RUNS) for key in found]


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
