"""Tracks blobs that the control plane is storing for runs, so that a run's end waits for its own.

A run's ``final`` names its outputs and must not be durable before they are. Used by the command
executor.
"""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from flowmesh_core.units import Digest

Place = tuple[str, Digest]
"""A scope, and a blob there."""


@dataclass(slots=True, eq=False)
class PendingPut:
    """A blob that is being stored in a scope, and the runs that wait for it."""

    place: Place
    uids: set[str] = field(default_factory=set)


class PendingPuts:
    """The pending puts, by run and by place."""

    def __init__(self) -> None:
        self._by_place: dict[Place, list[PendingPut]] = {}
        self._open: Counter[str] = Counter()
        self._then: dict[str, list[Callable[[], None]]] = {}

    def begin(self, uid: str, place: Place) -> PendingPut:
        """Adds a put of a blob for a run; it is pending until :meth:`end`."""
        put = PendingPut(place)
        self._by_place.setdefault(place, []).append(put)
        self._wait(uid, put)
        return put

    def end(self, put: PendingPut) -> None:
        """Ends a put whose blob is durable; calls back runs that waited only for it."""
        puts = self._by_place[put.place]
        puts.remove(put)
        if not puts:
            del self._by_place[put.place]
        for uid in put.uids:
            self._open[uid] -= 1
            if not self._open[uid]:
                del self._open[uid]
                for then in self._then.pop(uid, ()):
                    then()

    def join(self, uid: str, places: Collection[Place]) -> set[Digest]:
        """Makes a run wait for those of these blobs that are being stored, and returns them."""
        found = set(places) & self._by_place.keys()
        for place in found:
            for put in self._by_place[place]:
                self._wait(uid, put)
        return {digest for _, digest in found}

    def after(self, uid: str, then: Callable[[], None]) -> None:
        """Calls back once no pending put is left that this run waits for."""
        if uid in self._open:
            self._then.setdefault(uid, []).append(then)
        else:
            then()

    def _wait(self, uid: str, put: PendingPut) -> None:
        if uid not in put.uids:
            put.uids.add(uid)
            self._open[uid] += 1
