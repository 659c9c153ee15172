"""The fabric's account: bill = receipts + services + fabric + unsettled, to the nano-dollar."""

from dataclasses import dataclass


@dataclass(slots=True)
class FabricAccount:
    """Totals since the control plane's accounts began.

    Attributes:
        bill_nanousd: what all workers have cost.
        receipts_nanousd: what runs have paid.
        fabric_nanousd: idle, boot, lost and replica time, which no run pays.
        services_nanousd: what the replicas of services have cost.
        saved_nanousd: what hits would have cost their runs.
    """

    bill_nanousd: int = 0
    receipts_nanousd: int = 0
    fabric_nanousd: int = 0
    saved_nanousd: int = 0
    executed: int = 0
    hits_published: int = 0
    hits_in_flight: int = 0
    hits_step_level: int = 0
    services_nanousd: int = 0

    @property
    def unsettled_nanousd(self) -> int:
        """The cost so far of attempts that have not ended."""
        settled = self.receipts_nanousd + self.services_nanousd + self.fabric_nanousd
        return self.bill_nanousd - settled
