"""Blobs that the control plane is storing for runs: a run's end waits for its own, not for others'.

A run's ``final`` names its outputs; it must not be durable while one of them is not. Used by
``outside``.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from flowmesh_core.units import Digest


@dataclass(slots=True, eq=False)
class PendingPut:
    """One blob on its way to the store, and the runs that wait for it."""

    digest: Digest
    uids: set[str] = field(default_factory=set)


class PendingPuts:
    """What is on its way, by run and by digest."""

    def __init__(self) -> None:
        """Nothing is on its way."""
        self._by_digest: dict[Digest, list[PendingPut]] = {}
        self._open: Counter[str] = Counter()
        self._then: dict[str, list[Callable[[], None]]] = {}

    def begin(self, uid: str, digest: Digest) -> PendingPut:
        """A blob of this run is to be stored; not over before :meth:`end`."""
        put = PendingPut(digest)
        self._by_digest.setdefault(digest, []).append(put)
        self._wait(uid, put)
        return put

    def end(self, put: PendingPut) -> None:
        """The blob is durable."""
        puts = self._by_digest[put.digest]
        puts.remove(put)
        if not puts:
            del self._by_digest[put.digest]
        for uid in put.uids:
            self._open[uid] -= 1
            if not self._open[uid]:
                del self._open[uid]
                for then in self._then.pop(uid, ()):
                    then()

    def join(self, uid: str, digests: frozenset[Digest]) -> frozenset[Digest]:
        """Lets a run wait for those of these blobs that are on their way; which they are."""
        found = digests & self._by_digest.keys()
        for digest in found:
            for put in self._by_digest[digest]:
                self._wait(uid, put)
        return found

    def after(self, uid: str, then: Callable[[], None]) -> None:
        """Calls back once nothing that this run waits for is on its way."""
        if uid in self._open:
            self._then.setdefault(uid, []).append(then)
        else:
            then()

    def _wait(self, uid: str, put: PendingPut) -> None:
        if uid not in put.uids:
            put.uids.add(uid)
            self._open[uid] += 1
