"""Signature classes in quarantine, in memory and under ``quarantine/`` (ADR 8).

Runs that are accepted while a class is in quarantine use other action ids for its actions, so that
they neither find nor publish results under the old ones.
"""

import asyncio
from collections.abc import Mapping

import msgspec

from flowmesh_api.v1.audit import QuarantineEntry
from flowmesh_control.errors import NotFoundError
from flowmesh_control.records.keys import QUARANTINE, quarantine_key
from flowmesh_control.records.known_keys import digest_keys
from flowmesh_control.records.run_records import decode_record
from flowmesh_core.errors import ConditionFailedError, StoreUnavailableError
from flowmesh_core.units import Digest
from flowmesh_store.ports import RecordStore

_decoder = msgspec.json.Decoder(QuarantineEntry)


class Quarantine:
    """The signature classes in quarantine."""

    def __init__(self, records: RecordStore) -> None:
        """Starts empty; :meth:`load` reads the stored classes."""
        self._records = records
        self._entries: dict[Digest, QuarantineEntry] = {}
        self._lock = asyncio.Lock()

    async def load(self) -> None:
        """Reads every class, also released ones, whose salts must not be reused."""
        for key in await digest_keys(self._records, QUARANTINE):
            record = await self._records.read(key)
            if record is not None and not record.is_foreign:
                entry = decode_record(_decoder, key, record)
                self._entries[Digest(entry.signature_class)] = entry

    def salts(self) -> Mapping[Digest, int]:
        """Returns the salts of the action ids of runs accepted now, by class."""
        return {c: e.bump for c, e in self._entries.items() if e.active}

    def active(self) -> list[QuarantineEntry]:
        """Returns the classes in quarantine, the latest first."""
        found = [e for e in self._entries.values() if e.active]
        return sorted(found, key=lambda e: (-e.since_s, e.signature_class))

    async def add(self, entry: QuarantineEntry, *, seen: int) -> bool:
        """Puts a class into quarantine.

        Args:
            entry: its evidence; the bump is set here.
            seen: the bump of the result that did not repeat.

        Returns:
            False where a later quarantine covers that result already.

        Raises:
            StoreUnavailableError, StoreFullError: try again; nothing is added twice.
        """
        async with self._lock:
            standing, etag = await self._read(Digest(entry.signature_class))
            if standing is not None and standing.active:
                if standing.audit == entry.audit:
                    return True
                if standing.bump > seen:
                    return False
            bump = 1 if standing is None else standing.bump + 1
            await self._write(msgspec.structs.replace(entry, bump=bump, active=True), etag)
            return True

    async def release(self, beginning: str) -> QuarantineEntry:
        """Ends the quarantine of a class, so that its earlier results are found again.

        Args:
            beginning: an unambiguous prefix of the class.

        Raises:
            NotFoundError: no class in quarantine begins with it, or several do.
        """
        async with self._lock:
            found = [e for e in self.active() if e.signature_class.startswith(beginning)]
            if len(found) != 1:
                raise NotFoundError(
                    f"{len(found) or 'no'} signature classes in quarantine begin with "
                    f"{beginning[:64]!r}",
                    where="quarantine",
                    remedy="`fmesh audit --list` shows them",
                )
            standing, etag = await self._read(Digest(found[0].signature_class))
            released = msgspec.structs.replace(standing or found[0], active=False)
            await self._write(released, etag)
            return released

    async def _read(self, signature_class: Digest) -> tuple[QuarantineEntry | None, str | None]:
        key = quarantine_key(signature_class)
        record = await self._records.read(key)
        if record is None:
            return None, None
        return decode_record(_decoder, key, record), record.etag

    async def _write(self, entry: QuarantineEntry, etag: str | None) -> None:
        key = quarantine_key(entry.signature_class)
        try:
            await self._records.write(key, msgspec.json.encode(entry), if_match=etag)
        except ConditionFailedError as e:
            raise StoreUnavailableError("the quarantine changed meanwhile", where=key) from e
        self._entries[Digest(entry.signature_class)] = entry
