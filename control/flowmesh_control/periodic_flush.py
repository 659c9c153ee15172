"""Writes what a control plane has in memory, each ``flush_s`` and when it stops.

Called by the control plane.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass

from flowmesh_control.metrics.exposition import MetricsPage
from flowmesh_control.records.accounts import AbsentRuns, AccountsRecord, AccountStore
from flowmesh_control.records.cost_model_snapshot import CostModelSnapshot
from flowmesh_control.records.ended_index import EndedRunIndex
from flowmesh_control.records.ledger import LedgerWriter
from flowmesh_core.costmodel.model import CostModel


@dataclass(frozen=True, slots=True)
class PeriodicFlush:
    """Writes ledgers, then the accounts that count them, then the index of ended runs.

    The order matters: a line of the index states that the durable accounts count its run.

    Attributes:
        capture: returns the accounts, given the lengths of the ledgers that they count and the
            time.
        under_way: returns the ids of the attempts under way.
        absent: as :attr:`OpeningBalance.absent`.
        metrics: shows the accounts that were written last.
        ledger: of the runs under way.
        index: of ended runs.
        snapshot: where the cost model is written.
    """

    capture: Callable[[Mapping[str, int], float], AccountsRecord]
    under_way: Callable[[], Set[str]]
    model: CostModel
    absent: AbsentRuns
    metrics: MetricsPage
    ledger: LedgerWriter
    index: EndedRunIndex
    accounts: AccountStore
    snapshot: CostModelSnapshot

    async def write(self, now_s: float) -> None:
        """Flushes every ledger and writes the accounts of this moment."""
        record, ended = self.capture(self.ledger.lengths(), now_s), self.index.waiting()
        self.absent.adopt(self.under_way())
        record = self.absent.added_to(record)
        await self.ledger.flush_all()
        durable = await self.accounts.write(record)
        self.metrics.last_accounts = record
        if durable:
            await self.index.write(ended)

    async def save_model(self) -> None:
        """Writes the cost model."""
        await self.snapshot.save(self.model)

    async def close(self, now_s: float) -> None:
        """Writes everything one last time."""
        await self.write(now_s)
        await self.save_model()
