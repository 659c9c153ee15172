"""A decorator that seals the records that are written and checks the seals of those that are read.

The control plane wraps the records of its store with it; workers write no records. A record without
a valid seal is returned with ``damage`` and no content, so that a writer can replace it by its
etag. Of an action result that is a miss; of other records readers raise ``DamagedRecordError``.
"""

import logging
from collections.abc import AsyncIterator, Callable

from flowmesh_core.errors import StoreUnavailableError
from flowmesh_core.sharing.seals import RecordSeals, SealError, UnknownKeyError
from flowmesh_store.keys import ACTIONS
from flowmesh_store.ports import Record, Records

log = logging.getLogger("flowmesh.store")

UNKNOWN_KEY = "unknown-key"
_RESULTS = f"{ACTIONS}/"


class ResultKeyError(StoreUnavailableError):
    """An action result is sealed with a key that the key ring does not have.

    It is not a miss: with the key the result is valid. The look-up waits and is repeated.
    """


class SealedRecords:
    """Records whose content is sealed."""

    def __init__(
        self, inner: Records, seals: RecordSeals, *, refused: Callable[[str], None]
    ) -> None:
        """Keeps the arguments.

        Args:
            inner: stores the sealed records.
            seals: seals and opens them.
            refused: called with the reason for which a record is not believed: ``unsealed``,
                ``wrong``, ``retired`` or ``unknown-key``.
        """
        self._inner = inner
        self._seals = seals
        self._refused = refused

    async def read(self, key: str) -> Record | None:
        """As :meth:`RecordStore.read`; a record without a valid seal has ``damage``.

        Raises:
            ResultKeyError: an action result is sealed with an unknown key.
        """
        record = await self._inner.read(key)
        if record is None:
            return None
        try:
            return Record(self._seals.open(key, record.data), record.etag)
        except SealError as e:
            self._refuse(key, e.kind, e.message)
            return Record(b"", record.etag, e.message)
        except UnknownKeyError as e:
            self._refuse(key, UNKNOWN_KEY, e.message)
            if key.startswith(_RESULTS):
                raise ResultKeyError(e.message, where=key, remedy=e.remedy) from e
            return Record(b"", record.etag, e.message, e.key_id)

    def _refuse(self, key: str, reason: str, message: str) -> None:
        self._refused(reason)
        log.warning("the record %s is not believed: %s", key, message)

    async def write(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        """As :meth:`RecordStore.write`."""
        return await self._inner.write(key, self._seals.seal(key, data), if_match=if_match)

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        """As :meth:`RecordStore.keys`."""
        async for key in self._inner.keys(prefix):
            yield key

    async def folders(self, prefix: str) -> AsyncIterator[str]:
        """As :meth:`RecordFolders.folders`."""
        async for name in self._inner.folders(prefix):
            yield name
