"""What fits into a bounded store, the most recently used first; used by an eviction."""

FILL = 0.9
"""What an eviction leaves, as a share of the bound, so that not every collection evicts."""


class Recency:
    """The last use of content and of records; what several results name counts once."""

    def __init__(self) -> None:
        self._uses: dict[str, tuple[float, int]] = {}

    def add(self, name: str, size_bytes: int, used_s: float) -> None:
        """Adds a use.

        Args:
            name: the digest of the content, or the key of the record.
            size_bytes: its size.
            used_s: Unix time in seconds; infinity for content that cannot be evicted.
        """
        before_s, _ = self._uses.get(name, (0.0, 0))
        self._uses[name] = (max(before_s, used_s), size_bytes)

    def horizon_s(self, *, used_bytes: int, bytes_max: int) -> float:
        """Returns the time such that what was used later fits; 0 where everything does.

        Data sets share chunks, so their sizes add up to more than what is stored: they are scaled
        to what was measured.

        Args:
            used_bytes: size of what is in use, as measured.
            bytes_max: the bound, of which :data:`FILL` is filled.
        """
        latest = sorted(self._uses.values(), reverse=True)
        scale = min(1.0, used_bytes / max(1, sum(size for _, size in latest)))
        free = FILL * bytes_max
        for used_s, size_bytes in latest:
            free -= scale * size_bytes
            if free < 0:
                return used_s
        return 0.0
