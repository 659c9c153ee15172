"""The index of a cache: sizes, order of use and pins; it touches no files and no clock."""

from collections import Counter, OrderedDict
from collections.abc import Iterable

from flowmesh_core.units import Digest


class CacheIndex:
    """Cached blobs in order of use. Calls return the digests that the caller must evict.

    Only pinned blobs may exceed the budget.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
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
        if excess <= 0:
            return evicted
        for digest, size in self._sizes.items():
            if excess <= 0:
                break
            if digest not in self._pins:
                evicted.append(digest)
                excess -= size
        for digest in evicted:
            self.drop(digest)
        return evicted
