"""Which writes of a filesystem store wait for the disk; chosen when a store is opened.

Every write survives the death of its process: it is atomic, and the kernel has it before the call
returns. Only a power cut or a kernel crash can undo it, and only waiting for the disk (measured:
0.3 ms on an SSD, 10 ms on a spinning disk) prevents that. Most losses are repaired by executing
again: a torn blob is found by its digest, a result by its checksum. A verdict that was shown must
not disappear, so by default the records that verdicts rest on wait.
"""

from enum import StrEnum

_UNSYNCED = ("actions/", "lineage/", "proof/")


class Durability(StrEnum):
    """Which writes of a filesystem store wait for the disk."""

    PROCESS = "process"
    """None: data survive SIGKILL, but maybe not a power cut. For tests and benchmarks."""
    VERDICTS = "verdicts"
    """Records, except action results and lineage, which can be produced again. The default."""
    POWER = "power"
    """All, including blobs: for a store that many machines rely on."""

    def syncs_record(self, key: str) -> bool:
        """Whether writing this record waits for the disk."""
        if self is Durability.VERDICTS:
            return not key.startswith(_UNSYNCED)
        return self is Durability.POWER
