"""How often replicas ran out of memory, so that a new one begins with as few calls at once.

Workers report it of the replicas that they were given. It is learned for what a replica loads, on
a class of devices and in a pool: a worker that reports what is not so harms its pool alone.
"""

from collections.abc import Collection, Iterable, Mapping

from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.units import Digest

Place = tuple[str, str]
"""A pool and a class of devices."""


class LearnedHalvings:
    """The halvings of calls at once, by signature and place."""

    def __init__(self) -> None:
        self._known: dict[Digest, dict[Place, int]] = {}

    def observe(self, workers: Iterable[Worker]) -> None:
        """Learns what workers report of the replicas that they were given."""
        for worker in workers:
            place = worker.shape.pool, worker.shape.device_class
            for replica in worker.replicas or ():
                state = worker.replica_states.get(replica.replica_id)
                if state is not None and state.halvings:
                    found = self._known.setdefault(replica.opening.signature, {})
                    found[place] = max(found.get(place, 0), state.halvings)

    def keep(self, signatures: Collection[Digest]) -> None:
        """Forgets what no service loads any more."""
        self._known = {s: found for s, found in self._known.items() if s in signatures}

    def of(self, signature: Digest) -> Mapping[Place, int]:
        """Returns the halvings by place; none where no replica ran out of memory."""
        return self._known.get(signature, {})
