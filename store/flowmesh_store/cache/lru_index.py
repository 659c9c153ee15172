"""The index of a cache: sizes, order of use and pins; it touches no files and no clock."""

from collections import Counter, OrderedDict
from collections.abc import Iterable

from flowmesh_core.units import Digest

BLOBS_MAX = 100_000
"""Cached blobs at most: a hundred million blobs of a kilobyte fit into a usual budget of bytes, but
neither into the memory of a worker nor into the file system, which gives each a block of its own.
"""


class CacheIndex:
    """Cached blobs in order of use. Calls return the digests that the caller must evict.

    Only pinned blobs may exceed the budget.
    """

    def __init__(self, budget_bytes: int, blobs_max: int = BLOBS_MAX) -> None:
        self.budget_bytes = budget_bytes
        self.blobs_max = blobs_max
        self.used_bytes = 0
        self._sizes: OrderedDict[Digest, int] = OrderedDict()
        self._pins: Counter[Digest] = Counter()
        self._doomed: set[Digest] = set()

    def __contains__(self, digest: Digest) -> bool:
        """Whether the blob is cached."""
        return digest in self._sizes

    def cached_sizes(self) -> dict[Digest, int]:
        """Returns the cached digests with sizes in bytes, the least recently used first."""
        return dict(self._sizes)

    def size_bytes(self, digest: Digest) -> int:
        """Returns the size of a cached blob; 0 for another one."""
        return self._sizes.get(digest, 0)

    def add(self, digest: Digest, size_bytes: int) -> list[Digest]:
        """Adds a blob as the most recently used; returns the digests to evict."""
        self.drop(digest)
        self._sizes[digest] = size_bytes
        self.used_bytes += size_bytes
        return self._evict()

    def use(self, digest: Digest) -> None:
        """Marks a blob as the most recently used."""
        if digest in self._sizes:
            self._sizes.move_to_end(digest)

    def drop(self, digest: Digest) -> None:
        """Removes a blob from the index."""
        self.used_bytes -= self._sizes.pop(digest, 0)

    def doom(self, digests: Iterable[Digest]) -> list[Digest]:
        """Removes blobs for good; returns the digests to evict, pinned ones when unpinned."""
        self._doomed.update(d for d in digests if d in self._sizes)
        return self._evict()

    def pin(self, digest: Digest) -> None:
        """Protects a blob from eviction until :meth:`unpin`; pins are counted.

        The blob may be added later.
        """
        self._pins[digest] += 1

    def unpin(self, digest: Digest) -> list[Digest]:
        """Removes one pin; returns the digests to evict."""
        self._pins[digest] -= 1
        if not self._pins[digest]:
            del self._pins[digest]
        return self._evict()

    def _evict(self) -> list[Digest]:
        evicted = [d for d in self._doomed if d not in self._pins] if self._doomed else []
        for digest in evicted:
            self._doomed.discard(digest)
            self.drop(digest)
        return evicted + self._beyond_budget()

    def _beyond_budget(self) -> list[Digest]:
        evicted: list[Digest] = []
        excess = self.used_bytes - self.budget_bytes
        more = len(self._sizes) - self.blobs_max
        if excess <= 0 and more <= 0:
            return evicted
        for digest, size in self._sizes.items():
            if excess <= 0 and more <= 0:
                break
            if digest not in self._pins:
                evicted.append(digest)
                excess -= size
                more -= 1
        for digest in evicted:
            self.drop(digest)
        return evicted
