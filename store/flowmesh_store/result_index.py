"""The index of results: which actions may have a published result.

In a bucket every look-up is a request, and most find nothing. The leading control plane is the only
writer of results, so it lists them once and from then on knows which actions have none. The index
may be wrong in one direction only: an action that it does not have can still get a result from a
leader that was superseded and has not noticed. Its publication then fails, and adopts that result.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from flowmesh_core.errors import StoreUnavailableError
from flowmesh_core.units import Digest

log = logging.getLogger("flowmesh.store")

_BUCKET_DIGITS = 3
_PREFIX_END = _BUCKET_DIGITS + 16
"""The bucket, and eight bytes: two of ten million ids have the same with a chance of 1 in 10^9."""
_BUCKETS = 16**_BUCKET_DIGITS
_PAUSE_EVERY = 256
_RETRY_S = 30.0


class ResultIndex:
    """Action ids that may have a result in any scope, 8 bytes each.

    Ids are hashes, so their beginnings are spread evenly over the buckets. A bucket is searched as
    one string of bytes: a match across the border of two ids only costs a request.
    """

    __slots__ = ("_buckets", "_complete")

    def __init__(self) -> None:
        self._buckets = [bytearray() for _ in range(_BUCKETS)]
        self._complete = False

    def may_have(self, action_id: Digest) -> bool:
        """Whether the action may have a result; True for all until the index is complete."""
        if not self._complete:
            return True
        bucket, prefix = _place(action_id)
        return prefix in self._buckets[bucket]

    def add(self, action_id: Digest) -> None:
        """Adds an action whose result was just written."""
        bucket, prefix = _place(action_id)
        if prefix not in self._buckets[bucket]:
            self._buckets[bucket] += prefix

    async def load(self, keys: Callable[[], AsyncIterator[str]]) -> None:
        """Adds all results that are stored; tries again while the store does not answer.

        Args:
            keys: lists the keys of all results.
        """
        while True:
            try:
                await self._load(keys())
            except StoreUnavailableError as error:
                log.warning("results are not listed yet, so each look-up asks the store: %s", error)
                await asyncio.sleep(_RETRY_S)
            else:
                self._complete = True
                return

    async def _load(self, keys: AsyncIterator[str]) -> None:
        number = 0
        async for key in keys:
            name = key.rpartition("/")[2]
            try:
                self.add(Digest(name))
            except ValueError:
                continue  # not the name of a result, so no look-up asks for it
            number += 1
            if number % _PAUSE_EVERY == 0:
                await asyncio.sleep(0)  # a page of the listing has a thousand


def _place(action_id: Digest) -> tuple[int, bytes]:
    """Returns the bucket of an id and what it is known by there.

    Raises:
        ValueError: it does not begin with hexadecimal digits.
    """
    return int(action_id[:_BUCKET_DIGITS], 16), bytes.fromhex(action_id[_BUCKET_DIGITS:_PREFIX_END])
