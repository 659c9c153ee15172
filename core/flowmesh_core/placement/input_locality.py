"""Locality: where copies of inputs and components are. Negligible inputs do not count.

Content that only another worker in the zone has is in :attr:`Tier.ZONE`, which is nearer than a
copy in another zone. If all workers are in the same zone, or in none, zones do not tell workers
apart and are ignored.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from flowmesh_core.fleet.ready import NEGLIGIBLE_BYTES, ReadyAction
from flowmesh_core.fleet.snapshot import Snapshot, Tier
from flowmesh_core.placement.settings import LOCALITY_BY_WORKER_MAX
from flowmesh_core.units import Digest


class InputLocality:
    """Finds copies of inputs and components in one cycle. Draining workers do not count."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._local = [{} if worker.draining else worker.local for worker in snapshot.workers]
        self._read_inputs = snapshot.ready.wanted
        self._by_input: dict[Digest, list[int]] | None = None
        zones = [worker.shape.zone for worker in snapshot.workers]
        self._zones = zones if len(set(zones)) > 1 else []
        self._zones_with: dict[Digest, frozenset[str]] = {}

    def tier(self, digest: Digest, member: int) -> Tier | None:
        """Returns how near content is to a worker; None if no copy is near."""
        found = self._local[member].get(digest)
        if found is None and self._zones and self._zones[member] in self._zones_of(digest):
            return Tier.ZONE
        return found

    def tiers(self, digests: Sequence[Digest], member: int) -> Iterable[Tier | None]:
        """Returns :meth:`tier` of each digest; called for every worker and signature of a cycle."""
        if self._zones:
            return [self.tier(digest, member) for digest in digests]
        return map(self._local[member].get, digests)

    def among(self, action: ReadyAction, members: Collection[int]) -> Iterable[int]:
        """Returns the ``members`` that are near inputs of an action, input by input.

        Each input adds the workers that have it, and at most ``LOCALITY_BY_WORKER_MAX`` workers of
        the zones with a copy.
        """
        found: dict[int, None] = {}
        local = self._local
        for digest, size in action.inputs:
            if size > NEGLIGIBLE_BYTES:
                if len(members) > LOCALITY_BY_WORKER_MAX:
                    holders = [m for m in self._all(digest) if m in members]
                else:
                    holders = [m for m in members if digest in local[m]]
                for member in holders:
                    found[member] = None
                if self._zones:
                    found.update(dict.fromkeys(self._in_zones_of(digest, members)))
        return found

    def anywhere(self, action: ReadyAction) -> bool:
        """Whether any worker has an input of an action."""
        digests = [digest for digest, size in action.inputs if size > NEGLIGIBLE_BYTES]
        return any(digest in local for digest in digests for local in self._local)

    def local_inputs(self, action: ReadyAction, member: int) -> list[tuple[Tier, int]]:
        """Returns the tier and the bytes of each input of an action that is near a worker."""
        if self._zones:
            near = [(self.tier(digest, member), n) for digest, n in action.inputs
                    if n > NEGLIGIBLE_BYTES]  # fmt: skip
            return [(tier, size) for tier, size in near if tier is not None]
        local = self._local[member]
        sizes = [(local.get(digest), n) for digest, n in action.inputs if n > NEGLIGIBLE_BYTES]
        return [(tier, size) for tier, size in sizes if tier is not None]

    def _in_zones_of(self, digest: Digest, members: Collection[int]) -> Iterable[int]:
        with_copy = self._zones_of(digest)
        if not with_copy:
            return ()
        zones = self._zones
        return islice((m for m in members if zones[m] in with_copy), LOCALITY_BY_WORKER_MAX)

    def _zones_of(self, digest: Digest) -> frozenset[str]:
        """Returns the zones of the workers that have a copy."""
        found = self._zones_with.get(digest)
        if found is None:
            pairs = zip(self._zones, self._local, strict=True)
            found = frozenset(zone for zone, local in pairs if zone and digest in local)
            self._zones_with[digest] = found
        return found

    def _all(self, digest: Digest) -> list[int]:
        if self._by_input is None:
            self._by_input = {}
            wanted = self._read_inputs.keys()
            for member, local in enumerate(self._local):
                for found in local.keys() & wanted:
                    self._by_input.setdefault(found, []).append(member)
        return self._by_input.get(digest, [])
