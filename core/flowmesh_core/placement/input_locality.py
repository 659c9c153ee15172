"""Input locality: the workers that have inputs of ready actions. Negligible inputs do not count."""

from collections.abc import Collection, Iterable

from flowmesh_core.fleet.ready import NEGLIGIBLE_BYTES, ReadyAction
from flowmesh_core.fleet.snapshot import Snapshot, Tier
from flowmesh_core.placement.settings import LOCALITY_BY_WORKER_MAX
from flowmesh_core.units import Digest


class InputLocality:
    """Finds them in one cycle. Workers that are draining do not count."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._local = [{} if worker.draining else worker.local for worker in snapshot.workers]
        self._read_inputs = snapshot.ready.wanted
        self._by_input: dict[Digest, list[int]] | None = None

    def among(self, action: ReadyAction, members: Collection[int]) -> Iterable[int]:
        """Returns those of ``members`` that have inputs of an action, input by input."""
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
        return found

    def anywhere(self, action: ReadyAction) -> bool:
        """Whether any worker has an input of an action."""
        digests = [digest for digest, size in action.inputs if size > NEGLIGIBLE_BYTES]
        return any(digest in local for digest in digests for local in self._local)

    def local_inputs(self, action: ReadyAction, member: int) -> list[tuple[Tier, int]]:
        """Returns tier and bytes of those inputs of an action that a worker has."""
        local = self._local[member]
        sizes = [(local.get(digest), n) for digest, n in action.inputs if n > NEGLIGIBLE_BYTES]
        return [(tier, size) for tier, size in sizes if tier is not None]

    def _all(self, digest: Digest) -> list[int]:
        if self._by_input is None:
            self._by_input = {}
            wanted = self._read_inputs.keys()
            for member, local in enumerate(self._local):
                for found in local.keys() & wanted:
                    self._by_input.setdefault(found, []).append(member)
        return self._by_input.get(digest, [])
