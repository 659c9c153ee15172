"""Keys under a known prefix, read for what they say; objects that are not ours are passed over.

Everything that lists a prefix whose keys have a form uses this: a stray file in a store must end
neither a start nor a query.
"""

import logging
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from flowmesh_store.ports import RecordStore

log = logging.getLogger("flowmesh.control")

_NAMED = 3
_Said = TypeVar("_Said")


async def known_keys(
    records: RecordStore, prefix: str, parse: Callable[[str], _Said | None]
) -> AsyncIterator[tuple[str, _Said]]:
    """The keys below a prefix in order, each with what it says.

    Args:
        records: where to look.
        prefix: ends in a slash.
        parse: what a key says; None for one that has not the form of a key of this prefix. Those
            are skipped, with one warning that names the first of them.
    """
    strange: list[str] = []
    async for key in records.keys(prefix):
        said = parse(key)
        if said is None:
            strange.append(key)
        else:
            yield key, said
    if strange:
        more = f" and {len(strange) - _NAMED} more" if len(strange) > _NAMED else ""
        log.warning(
            "the store holds what is not FlowMesh's: %s%s; skipped: move it elsewhere",
            ", ".join(strange[:_NAMED]),
            more,
        )
