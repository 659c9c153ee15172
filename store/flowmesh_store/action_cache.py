"""The action cache: published results, of which the first wins.

Only the control plane writes here. ``publish`` writes at most once: a second publisher reads the
existing result, checks it and adopts it. ``replace`` is for a result that lost a blob which is
still needed; it writes the next generation. ``publish`` itself replaces an expired or unreadable
record.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence

import msgspec

from flowmesh_core.errors import (
    ConditionFailedError,
    RevokedContentError,
    StoreError,
    StoreUnavailableError,
)
from flowmesh_core.protocol.results import ActionResult, decode_result, encode_result
from flowmesh_core.units import Digest
from flowmesh_store.hashing import digest_of
from flowmesh_store.keys import action_key
from flowmesh_store.ports import Record, RecordStore
from flowmesh_store.result_index import ResultIndex
from flowmesh_store.withheld_results import WithheldResults

RESULT_TTL_S = 30 * 24 * 3600.0
"""Default lifetime of a result, in seconds."""

_ROUNDS = 16


class StoredResult(msgspec.Struct, frozen=True, gc=False):
    """A result in the store.

    Attributes:
        scope: where it was found or written.
        result: the record itself.
        etag: its version, for :meth:`ActionCache.replace`.
        won: whether this call wrote it; False where it was found or another writer was first.
    """

    scope: str
    result: ActionResult
    etag: str
    won: bool = False


class ActionCache:
    """Results of actions under ``actions/<scope>/<action_id>``."""

    def __init__(
        self,
        records: RecordStore,
        *,
        ttl_s: float | None = RESULT_TTL_S,
        clock: Callable[[], float] = time.time,
        index: ResultIndex | None = None,
        withheld: WithheldResults | None = None,
        refuses: Callable[[ActionResult], bool] = lambda _: False,
        used: Callable[[str, Digest], None] | None = None,
    ) -> None:
        """Keeps where results are stored.

        Args:
            records: of the store.
            ttl_s: lifetime in seconds of results published without ``expires_s``; None for ever.
            clock: Unix time in seconds.
            index: saves the requests of look-ups that would find nothing; None asks the store.
            withheld: results that are not found, nor adopted: they are replaced.
            refuses: whether a result is made from revoked content: it is neither found nor written.
            used: called with the scope and the action of each result that a look-up finds.
        """
        self._records = records
        self._ttl_s = ttl_s
        self._clock = clock
        self._index = index
        self._withheld = withheld or WithheldResults()
        self._refuses = refuses
        self._used = used
        self._writes: dict[int, asyncio.Future[None] | None] = {}
        self._numbers = itertools.count()

    def may_have(self, action_id: Digest) -> bool:
        """Whether a look-up of the action has to ask the store."""
        return self._index is None or self._index.may_have(action_id)

    async def lookup(
        self,
        action_id: Digest,
        scopes: Sequence[str],
        *,
        not_before_s: float = 0.0,
        min_trust: int = 0,
    ) -> StoredResult | None:
        """Returns the first usable result in these scopes.

        Args:
            action_id: of the action.
            scopes: in order of preference.
            not_before_s: older results do not count (the run's creation minus ``maxAge``).
            min_trust: results of pools of less trust do not count.

        Raises:
            StoreUnavailableError: the store did not answer.
        """
        if not self.may_have(action_id):
            return None
        for scope in scopes:
            record = await self._records.read(action_key(scope, action_id))
            result = self._usable(scope, record, action_id, not_before_s, min_trust)
            if record is not None and result is not None:
                if self._used is not None:
                    self._used(scope, action_id)
                return StoredResult(scope, result, record.etag)
        return None

    async def publish(
        self,
        scope: str,
        result: ActionResult,
        *,
        not_before_s: float = 0.0,
        min_trust: int = 0,
    ) -> StoredResult:
        """Publishes a result, or adopts the usable one that was published first.

        Args:
            scope: where to publish.
            result: its generation is set here; ``created_s`` and ``expires_s`` where they are 0.
            not_before_s: an older result is replaced instead of adopted.
            min_trust: so is one of a pool of less trust.

        Returns:
            The result in the store; ``won`` says whether it is this one.

        Raises:
            StoreFullError, StoreUnavailableError: nothing was published.
        """
        key = action_key(scope, result.action_id)
        record: Record | None = None
        for _ in range(_ROUNDS):
            generation = 1 if record is None else _generation_of(record) + 1
            written = await self._write(scope, key, result, generation, record)
            if written is not None:
                return written
            record = await self._records.read(key)
            found = self._usable(scope, record, result.action_id, not_before_s, min_trust)
            if record is not None and found is not None:
                return StoredResult(scope, found, record.etag)
        raise _too_contended(key)

    async def replace(self, stale: StoredResult, result: ActionResult) -> StoredResult:
        """Replaces a result that lost a blob by a new one of the next generation.

        Args:
            stale: what :meth:`lookup` or :meth:`publish` returned.
            result: the new record.

        Returns:
            The result in the store: this one, or a newer one by another writer (see ``won``).

        Raises:
            StoreFullError, StoreUnavailableError: nothing was published.
        """
        key = action_key(stale.scope, result.action_id)
        record: Record | None = Record(b"", stale.etag)
        least = stale.result.generation + 1
        for _ in range(_ROUNDS):
            written = await self._write(stale.scope, key, result, least, record)
            if written is not None:
                return written
            record = await self._records.read(key)
            found = self._usable(stale.scope, record, result.action_id)
            if record is not None and found is not None and found.generation >= least:
                return StoredResult(stale.scope, found, record.etag)
            least = max(least, _generation_of(record) + 1) if record is not None else least
        raise _too_contended(key)

    async def _write(
        self, scope: str, key: str, result: ActionResult, generation: int, over: Record | None
    ) -> StoredResult | None:
        created = result.created_s or self._clock()
        expires = result.expires_s or (0.0 if self._ttl_s is None else created + self._ttl_s)
        stamped = result
        if (result.generation, result.created_s, result.expires_s) != (
            generation,
            created,
            expires,
        ):
            stamped = msgspec.structs.replace(
                result, generation=generation, created_s=created, expires_s=expires
            )
        if self._refuses(stamped):
            raise RevokedContentError(
                "the result is made from content that was revoked meanwhile", where=key
            )
        number = next(self._numbers)
        self._writes[number] = None
        try:
            etag = await self._records.write(
                key, encode_result(stamped), if_match=None if over is None else over.etag
            )
        except ConditionFailedError:
            return None
        finally:
            # Also after an error: the write may have reached the store.
            if self._index is not None:
                self._index.add(result.action_id)
            waiting = self._writes.pop(number)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)
        return StoredResult(scope, stamped, etag, won=True)

    async def writes_under_way(self) -> None:
        """Waits until the writes that have begun are answered."""
        loop = asyncio.get_running_loop()
        for number, waiting in self._writes.items():
            self._writes[number] = waiting or loop.create_future()
        await asyncio.gather(*filter(None, self._writes.values()))

    def _usable(
        self,
        scope: str,
        record: Record | None,
        action_id: Digest,
        not_before_s: float = 0.0,
        min_trust: int = 0,
    ) -> ActionResult | None:
        """Returns the result if it is complete, of this action, unexpired, recent and trusted.

        And not withheld: this is where every look-up misses withheld results.
        """
        result = decoded(record)
        if result is None or result.action_id != action_id or result.created_s < not_before_s:
            return None
        if result.provenance.trust < min_trust:
            return None
        if result.expires_s and result.expires_s <= self._clock():
            return None
        if self._withheld.hides(scope, result) or self._refuses(result):
            return None
        whole = all(digest_of(data) == digest for digest, data in result.inline.items())
        return result if whole else None


def decoded(record: Record | None) -> ActionResult | None:
    """Decodes a record; None for one torn by a power cut or written by something else."""
    if record is None:
        return None
    try:
        return decode_result(record.data)
    except msgspec.DecodeError:
        return None


def _generation_of(record: Record) -> int:
    result = decoded(record)
    return 0 if result is None else result.generation


def _too_contended(key: str) -> StoreError:
    return StoreUnavailableError(
        f"lost {_ROUNDS} conditional writes in a row",
        where=key,
        remedy="check that only one control plane leads, then try again",
    )
