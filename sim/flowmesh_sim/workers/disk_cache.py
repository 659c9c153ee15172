"""A simulated worker's disk: models, adapters and inputs, fetched once, the least used leave first.

What is being fetched is fetched once however many wait for it. A blob that the store has lost, or a
store that does not answer for long, ends the wait with a failure.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import FailureReport
from flowmesh_core.units import Digest
from flowmesh_sim.kernel.environment import Environment
from flowmesh_sim.models.store import SimStore

RETRY_S = 1.0
PATIENCE_S = 60.0
"""How long a store that does not answer is waited for."""

Done = Callable[[FailureReport | None], None]


@dataclass(slots=True)
class _Fetch:
    blobs: tuple[Digest, ...]
    size_bytes: int
    waiting: list[Done] = field(default_factory=list)
    since_s: float = 0.0


class DiskCache:
    """What lies near one worker.

    Attributes:
        held: digest → bytes, the least recently used first.
    """

    def __init__(
        self,
        engine: Environment,
        store: SimStore,
        *,
        budget_bytes: int,
        bytes_per_s: float,
        request_s: float,
        in_use: Callable[[], set[Digest]],
        changed: Callable[[], None],
    ) -> None:
        """Takes the store, the disk's size, and the way between them."""
        self._engine = engine
        self._store = store
        self._budget_bytes = budget_bytes
        self._bytes_per_s = bytes_per_s
        self._request_s = request_s
        self._in_use = in_use
        self._changed = changed
        self._fetching: dict[Digest, _Fetch] = {}
        self.held: OrderedDict[Digest, int] = OrderedDict()

    def fetch(self, digest: Digest, blobs: tuple[Digest, ...], size_bytes: int, done: Done) -> None:
        """Brings something near; ``done`` hears of it, at once where it is near already."""
        if digest in self.held:
            self.held.move_to_end(digest)
            done(None)
            return
        known = self._fetching.get(digest)
        if known is None:
            known = _Fetch(blobs, size_bytes, since_s=self._engine.now_s)
            self._fetching[digest] = known
            self._try(digest)
        known.waiting.append(done)

    def ahead(self, digest: Digest, blobs: tuple[Digest, ...], size_bytes: int, done: Done) -> None:
        """Brings something near that nobody waits for, unless anything else is on its way."""
        if not self._fetching:
            self.fetch(digest, blobs, size_bytes, done)

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
        took_s = self._request_s + self._store.slow_s + fetch.size_bytes / self._bytes_per_s
        self._engine.after(took_s, self._arrived, digest)

    def _arrived(self, digest: Digest) -> None:
        fetch = self._fetching[digest]
        lost = self._store.unreadable(fetch.blobs)
        if lost:
            named = " ".join(lost)
            self._over(
                digest, FailureReport(FailureKind.MISSING_BLOB, "blobs are lost", detail=named)
            )
            return
        self.held[digest] = fetch.size_bytes
        self._make_room(digest)
        self._changed()
        self._over(digest, None)

    def _over(self, digest: Digest, failure: FailureReport | None) -> None:
        fetch = self._fetching.pop(digest, None)
        for done in fetch.waiting if fetch else ():
            done(failure)

    def keep(self, digest: Digest, size_bytes: int) -> None:
        """An output of this worker is near it."""
        self.held[digest] = size_bytes
        self._make_room(digest)

    def _make_room(self, newest: Digest) -> None:
        used = sum(self.held.values())
        if used <= self._budget_bytes:
            return
        stays = self._in_use() | {newest}
        for digest in list(self.held):
            if used <= self._budget_bytes:
                return
            if digest not in stays:
                used -= self.held.pop(digest)
