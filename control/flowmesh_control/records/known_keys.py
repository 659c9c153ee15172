"""Lists keys in the form that FlowMesh writes, and skips others with a warning.

A stray file, such as a backup made by hand, must not stop a start or a query.
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
"""The most stray keys that the warning names."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_Parsed = TypeVar("_Parsed")


async def known_keys(
    records: RecordStore, prefix: str, parse: Callable[[str], _Parsed | None]
) -> AsyncIterator[tuple[str, _Parsed]]:
    """Yields the keys below a prefix in order, each with its parsed value.

    Args:
        records: of the store.
        prefix: ends in a slash.
        parse: returns a key's value; None for a key of another form. Such keys are skipped, with
            one warning that names the first of them.
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
    """Returns the keys ``<prefix><digest>``, in order."""
    return [
        key
        async for key, _ in known_keys(
            records, prefix, lambda key: _DIGEST.fullmatch(key.removeprefix(prefix))
        )
    ]


async def run_uids(records: Records) -> list[str]:
    """Returns the uids of all runs with any record, in order."""
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
        "below %s of the store FlowMesh ignores files that it did not write: %s%s; remove them",
        prefix,
        ", ".join(repr(key)[:200] for key in stray[:SHOWN]),
        more,
    )
