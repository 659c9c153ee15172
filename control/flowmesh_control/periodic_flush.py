"""Writes what a control plane has in memory, each ``flush_s`` and when it stops.

Called by the control plane.
"""

from dataclasses import dataclass

from flowmesh_control.metrics.exposition import MetricsPage
from flowmesh_control.quotas.uploaded_bytes import UploadedBytes
from flowmesh_control.records.accounts import AbsentRuns, AccountStore, capture
from flowmesh_control.records.cost_model_snapshot import CostModelSnapshot
from flowmesh_control.records.ended_index import EndedRunIndex
from flowmesh_control.records.ledger import LedgerWriter
from flowmesh_control.records.service_charges import ServiceChargeRecords
from flowmesh_core.machine.state import State


@dataclass(frozen=True, slots=True)
class PeriodicFlush:
    """Writes ledgers, then the accounts that count them, then the index of ended runs.

    The order matters: a line of the index states that the durable accounts count its run.

    Attributes:
        state: of the machine.
        uploaded: what namespaces uploaded, a part of the accounts.
        absent: as :attr:`OpeningBalance.absent`.
        metrics: shows the accounts that were written last.
        ledger: of the runs under way.
        index: of ended runs.
        service_charges: days that are over, after the accounts that have them.
        snapshot: where the cost model is written.
    """

    state: State
    uploaded: UploadedBytes
    absent: AbsentRuns
    metrics: MetricsPage
    ledger: LedgerWriter
    index: EndedRunIndex
    accounts: AccountStore
    service_charges: ServiceChargeRecords
    snapshot: CostModelSnapshot

    async def write(self, now_s: float) -> None:
        """Flushes every ledger and writes the accounts of this moment."""
        counted, uploaded = self.ledger.lengths(), self.uploaded.current()
        record, ended = capture(self.state, counted, now_s, uploaded), self.index.waiting()
        self.absent.adopt(self.state.attempts.keys())
        record = self.absent.added_to(record)
        await self.ledger.flush_all()
        durable = await self.accounts.write(record)
        self.metrics.last_accounts = record
        if durable:
            await self.index.write(ended)
            await self.service_charges.archive(record.service_days)

    async def save_model(self) -> None:
        """Writes the cost model."""
        await self.snapshot.save(self.state.model)

    async def close(self, now_s: float) -> None:
        """Writes everything one last time."""
        await self.write(now_s)
        await self.save_model()
