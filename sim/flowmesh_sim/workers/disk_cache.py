"""A simulated worker's disk: a cache of models, adapters and inputs, least recently used out first.

Concurrent requests for the same content share one fetch. It fails if the store has lost a blob or
does not answer for ``PATIENCE_S``.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import FailureReport
from flowmesh_core.units import Digest
from flowmesh_sim.kernel.environment import Environment
from flowmesh_sim.models.download_rates import DownloadRates
from flowmesh_sim.models.store import SimStore
from flowmesh_sim.workers.downlink import Downlink

RETRY_S = 1.0
PATIENCE_S = 60.0
"""After this time without an answer of the store a fetch fails."""

Done = Callable[[FailureReport | None], None]


@dataclass(slots=True)
class _Fetch:
    blobs: tuple[Digest, ...]
    size_bytes: int
    waiting: list[Done] = field(default_factory=list)
    since_s: float = 0.0


class DiskCache:
    """The content on one worker's disk.

    Attributes:
        sizes: size in bytes by digest, the least recently used first.
        weights: the models and adapters among them.
        fetches: when each fetch that has ended began and ended.
    """

    def __init__(
        self,
        engine: Environment,
        store: SimStore,
        *,
        budget_bytes: int,
        downloads: DownloadRates,
        request_s: float,
        in_use: Callable[[], set[Digest]],
        weights_changed: Callable[[frozenset[Digest]], None],
    ) -> None:
        """Starts empty.

        Args:
            engine: virtual time.
            store: the store to fetch from.
            budget_bytes: the disk's size.
            downloads: what fetches have together.
            request_s: time to the first byte.
            in_use: returns what must not be evicted.
            weights_changed: called with all models and adapters when their set has changed.
        """
        self._engine = engine
        self._store = store
        self._budget_bytes = budget_bytes
        self._downlink = Downlink(engine, downloads)
        self._request_s = request_s
        self._in_use = in_use
        self._weights_changed = weights_changed
        self._fetching: dict[Digest, _Fetch] = {}
        self.sizes: OrderedDict[Digest, int] = OrderedDict()
        self.weights: dict[Digest, int] = {}
        self.fetches: list[tuple[float, float]] = []

    def fetch_times(self) -> list[tuple[float, float]]:
        """Returns when each fetch began and ended; one that goes on ends now."""
        now_s = self._engine.now_s
        return [*self.fetches, *((f.since_s, now_s) for f in self._fetching.values())]

    def received_bytes(self) -> float:
        """Returns what has come from the store until now."""
        return self._downlink.received_bytes()

    def fetch(self, digest: Digest, blobs: tuple[Digest, ...], size_bytes: int, done: Done) -> None:
        """Fetches content and calls ``done``; at once if it is on the disk already."""
        if digest in self.sizes:
            self.sizes.move_to_end(digest)
            done(None)
            return
        known = self._fetching.get(digest)
        if known is None:
            known = _Fetch(blobs, size_bytes, since_s=self._engine.now_s)
            self._fetching[digest] = known
            self._try(digest)
        known.waiting.append(done)

    def _try(self, digest: Digest) -> None:
        fetch = self._fetching.get(digest)
        if fetch is None:
            return
        if self._store.down:
            if self._engine.now_s - fetch.since_s > PATIENCE_S:
                report = FailureReport(FailureKind.STORE, "the store does not answer")
                self._engine.after(0.0, self._over, digest, report)
            else:
                self._engine.after(RETRY_S, self._try, digest)
            return
        first_byte_s = self._request_s + self._store.slow_s
        arrived = partial(self._arrived, digest)
        self._engine.after(first_byte_s, self._downlink.start, fetch.size_bytes, arrived)

    def _arrived(self, digest: Digest) -> None:
        fetch = self._fetching[digest]
        lost = self._store.unreadable(fetch.blobs)
        if lost:
            named = " ".join(lost)
            self._over(
                digest, FailureReport(FailureKind.MISSING_BLOB, "blobs are lost", detail=named)
            )
            return
        self.add(digest, fetch.size_bytes)
        self._over(digest, None)

    def _over(self, digest: Digest, failure: FailureReport | None) -> None:
        fetch = self._fetching.pop(digest, None)
        if fetch is None:
            return
        self.fetches.append((fetch.since_s, self._engine.now_s))
        for done in fetch.waiting:
            done(failure)

    def restore(self, found: Mapping[Digest, int]) -> None:
        """Begins with the content that another worker left on this disk."""
        self.sizes.update(found)
        is_weights = self._store.contents.is_weights
        self.weights.update((d, size) for d, size in found.items() if is_weights(d))
        self._weights_changed(frozenset(self.weights))

    def add(self, digest: Digest, size_bytes: int) -> None:
        """Adds content that was fetched, or made here."""
        self.sizes[digest] = size_bytes
        changed = self._evict(digest)
        if self._store.contents.is_weights(digest):
            changed |= digest not in self.weights
            self.weights[digest] = size_bytes
        if changed:
            self._weights_changed(frozenset(self.weights))

    def _evict(self, newest: Digest) -> bool:
        """Evicts least recently used content; returns whether weights were evicted."""
        used, before = sum(self.sizes.values()), len(self.weights)
        if used <= self._budget_bytes:
            return False
        stays = self._in_use() | {newest}
        for digest in list(self.sizes):
            if used <= self._budget_bytes:
                break
            if digest not in stays:
                used -= self.sizes.pop(digest)
                self.weights.pop(digest, None)
        return len(self.weights) < before
