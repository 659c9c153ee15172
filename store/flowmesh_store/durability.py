"""What survives what. Whoever opens a store chooses; the default fits all but one case.

Every write survives the death of the process that made it: it is atomic and in the kernel's hands
before the call returns. Only a power cut or a crash of the kernel can undo it, and only waiting for
the disk (about 0.3 ms on an SSD here, 10 ms on a spinning disk) prevents that. What a power cut may
cost is repaired by running again: a torn blob is found by its digest, a result by its checksum.
A verdict that was shown must not be taken back, so the records that guard verdicts wait.
"""

from enum import StrEnum

_UNSYNCED = ("actions/", "lineage/", "proof/")


class Durability(StrEnum):
    """Which writes of a filesystem store wait for the disk."""

    PROCESS = "process"
    """None: all survives SIGKILL, nothing need survive a power cut. For tests and benches."""
    VERDICTS = "verdicts"
    """Records but action results and lineage, which are run or built again. The default."""
    POWER = "power"
    """All, blobs included: for a store that many machines rely on."""

    def syncs_record(self, key: str) -> bool:
        """Whether writing this record waits for the disk."""
        if self is Durability.VERDICTS:
            return not key.startswith(_UNSYNCED)
        return self is Durability.POWER
