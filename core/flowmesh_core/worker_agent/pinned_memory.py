"""The memory of replicas of services: reserved from the first host until the replica is unlisted.

An engine instance that is prewarmed gives its memory away when its host dies, and attempts take it.
The memory of a pinned signature is retained for the next host instead, so that a replica that
crashes is loaded again where it was (ADR 51).
"""

from flowmesh_core.units import Digest
from flowmesh_core.worker_agent.memory_reservations import MemoryBudget, Reservation


class PinnedMemory:
    """Which signatures are pinned, and the memory retained for those without an instance.

    Attributes:
        signatures: of the replicas that are listed.
        retained: memory of pinned signatures whose host is gone.
        reserved: pinned signatures that have had an instance since they were pinned: each has one
            now, or retained memory.
        waits: whether a pinned signature waits for memory; then no attempt gets any.
    """

    def __init__(self, memory: MemoryBudget) -> None:
        self._memory = memory
        self.signatures: frozenset[str] = frozenset()
        self.retained: dict[str, Reservation] = {}
        self.reserved: set[str] = set()
        self.waits = False

    def pin(self, signatures: frozenset[Digest]) -> None:
        """Sets the pinned signatures; frees what was retained for those that no longer are."""
        self.signatures, self.waits = frozenset(signatures), False
        self.reserved &= self.signatures
        for signature in [s for s in self.retained if s not in signatures]:
            self.release(signature)

    def of(self, key: str) -> list[Reservation]:
        """Returns what is retained for an instance of this key."""
        retained = self.retained.get(key)
        return [] if retained is None else [retained]

    def started(self, key: str) -> None:
        """Records that an instance has the memory that is to stay reserved from now on."""
        if key in self.signatures:
            self.reserved.add(key)

    def release(self, key: str) -> None:
        """Frees what is retained for an instance of this key, so that it can be reserved."""
        retained = self.retained.pop(key, None)
        if retained is not None:
            self._memory.release(retained)

    def host_ended(self, key: str, reservation: Reservation) -> None:
        """Retains the memory of a host that is gone if its signature is pinned; else frees it."""
        if key in self.signatures:
            self.retained[key] = reservation
            self.reserved.add(key)
        else:
            self._memory.release(reservation)
