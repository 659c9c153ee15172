"""Which blobs a cache keeps and which leave first. Bookkeeping only: no files, no clock."""

from collections import Counter, OrderedDict

from flowmesh_core.units import Digest


class CacheIndex:
    """Sizes in order of use, pins, and a budget. Calls return the digests that have to leave."""

    def __init__(self, budget_bytes: int) -> None:
        """Starts empty; the budget may be exceeded by what is pinned, and by nothing else."""
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self._sizes: OrderedDict[Digest, int] = OrderedDict()
        self._pins: Counter[Digest] = Counter()

    def __contains__(self, digest: Digest) -> bool:
        """Whether the blob is kept."""
        return digest in self._sizes

    def held(self) -> dict[Digest, int]:
        """What is kept, with sizes in bytes, the longest unused first."""
        return dict(self._sizes)

    def add(self, digest: Digest, size_bytes: int) -> list[Digest]:
        """Keeps a blob as the one used last."""
        self.drop(digest)
        self._sizes[digest] = size_bytes
        self.used_bytes += size_bytes
        return self._evict()

    def use(self, digest: Digest) -> None:
        """Marks a blob as used last."""
        if digest in self._sizes:
            self._sizes.move_to_end(digest)

    def drop(self, digest: Digest) -> None:
        """Forgets a blob that is gone."""
        self.used_bytes -= self._sizes.pop(digest, 0)

    def pin(self, digest: Digest) -> None:
        """Keeps a blob from leaving until :meth:`unpin`, once a call; it may arrive later."""
        self._pins[digest] += 1

    def unpin(self, digest: Digest) -> list[Digest]:
        """Takes one pin back."""
        self._pins[digest] -= 1
        if not self._pins[digest]:
            del self._pins[digest]
        return self._evict()

    def _evict(self) -> list[Digest]:
        leaving: list[Digest] = []
        excess = self.used_bytes - self.budget_bytes
        if excess <= 0:
            return leaving
        for digest, size in self._sizes.items():
            if excess <= 0:
                break
            if digest not in self._pins:
                leaving.append(digest)
                excess -= size
        for digest in leaving:
            self.drop(digest)
        return leaving
