"""Reads lineage records for one query: the derivations that have some digests.

Every walk has its own reader, which caches the list of keys: it sees all that was written before
the walk began, and lists the keys once, however long the walk is.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec

from flowmesh_api.v1.lineage import Derivation
from flowmesh_control.records.lineage_keys import BY_INPUT, BY_OUTPUT, RUNS, matching
from flowmesh_core.decoding import decode
from flowmesh_core.units import Digest
from flowmesh_store.ports import Records

log = logging.getLogger("flowmesh.control")

INDEXES = (BY_OUTPUT, BY_INPUT)
READS = 32
"""Records that are read concurrently."""
KEYS_CACHED_MAX = 100_000
"""More keys than these are not cached, but listed again for every step of a walk."""
_RECORDS_CACHED_MAX = 1_000
_KEYS_AT_ONCE = 1_000
_decoder = msgspec.json.Decoder(list[Derivation])


class LineageReader:
    """Reads and caches lineage records for one query."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._keys: list[str] | None = None
        self._shards: dict[str, frozenset[str]] = {}
        self._cached: dict[str, list[Derivation]] = {}

    async def touching(self, digests: Sequence[str], indexes: Iterable[str]) -> list[Derivation]:
        """Returns the derivations of all records that may contain one of these digests.

        Some of them do not; the caller filters.

        Args:
            digests: or prefixes of digests.
            indexes: ``BY_OUTPUT``, ``BY_INPUT`` or both: which sharded records to read; a
                derivation in them may be ``partial``.
        """
        keys: list[str] = []
        async for some in self._run_keys():
            keys += await asyncio.to_thread(matching, some, digests)
        beginnings = {digest[:2] for digest in digests}
        for index in indexes:
            for shard in sorted(beginnings & await self._shards_of(index)):
                keys += [key async for key in self._records.keys(f"{index}{shard}/")]
        return [d for found in await self._read_all(keys) for d in found]

    async def made_by_run(self, uid: str, digest: Digest) -> list[Derivation]:
        """Returns the derivations of a run that made an artifact."""
        keys = matching([key async for key in self._records.keys(f"{RUNS}{uid}/")], [digest])
        if digest[:2] in await self._shards_of(BY_OUTPUT):
            keys.append(f"{BY_OUTPUT}{digest[:2]}/{uid}")
        made = [d for found in await self._read_all(keys) for d in found]
        return [d for d in made if digest in d.outputs.values()]

    async def whole(self, partial: Derivation) -> Derivation:
        """Returns the complete derivation of a partial one; the partial one if it is missing."""
        output = next(iter(partial.outputs.values()))
        made = await self._read(f"{BY_OUTPUT}{output[:2]}/{partial.uid}")
        return next((d for d in made if d.step == partial.step), partial)

    async def _run_keys(self) -> AsyncIterator[list[str]]:
        """Yields the keys of runs' records, many at a time."""
        if self._keys is not None:
            for at in range(0, len(self._keys), _KEYS_AT_ONCE):
                yield self._keys[at : at + _KEYS_AT_ONCE]
            return
        held: list[str] = []
        some: list[str] = []
        async for key in self._records.keys(RUNS):
            some.append(key)
            if len(some) == _KEYS_AT_ONCE:
                yield some
                held += some if len(held) <= KEYS_CACHED_MAX else ()
                some = []
        yield some
        held += some
        if len(held) <= KEYS_CACHED_MAX:
            self._keys = held

    async def _shards_of(self, index: str) -> frozenset[str]:
        if index not in self._shards:
            self._shards[index] = frozenset([f async for f in self._records.folders(index)])
        return self._shards[index]

    async def _read_all(self, keys: Sequence[str]) -> list[list[Derivation]]:
        found: list[list[Derivation]] = []
        for at in range(0, len(keys), READS):
            found += await asyncio.gather(*map(self._read, keys[at : at + READS]))
        return found

    async def _read(self, key: str) -> list[Derivation]:
        if key in self._cached:
            return self._cached[key]
        record = await self._records.read(key)
        made: list[Derivation] = []
        try:
            made = [] if record is None else decode(_decoder, record.data)
        except msgspec.DecodeError as e:
            log.warning("the lineage record %s cannot be read (%s); skipped", key, e)
        if len(self._cached) >= _RECORDS_CACHED_MAX:
            self._cached.clear()
        self._cached[key] = made
        return made
