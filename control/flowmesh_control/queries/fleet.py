"""Queries about workers, engines and the fabric's accounts; called by the API."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from flowmesh_api.v1.engines import OfferedEngine
from flowmesh_api.v1.fabric import FabricStatus, WorkerStatus
from flowmesh_control.loop.clock import Clock
from flowmesh_control.loop.store_health import StoreHealth
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.machine.state import State
from flowmesh_core.status.projection import fabric_status, worker_statuses


@dataclass(frozen=True, slots=True)
class FleetQueries:
    """Answers questions about workers, engines and accounts.

    Attributes:
        unreadable_runs: returns those of the last collection of the store.
    """

    state: State
    catalog: Catalog
    health: StoreHealth
    unreadable_runs: Callable[[], tuple[str, ...]]
    clock: Clock

    def worker_statuses(self) -> list[WorkerStatus]:
        """Returns all connected workers in order of name."""
        return worker_statuses(self.state, self.clock())

    def offered_engines(self) -> list[OfferedEngine]:
        """Returns every contract of the catalog with the names of the workers that offer it."""
        shapes = [w.shape for w in self.state.workers.values()]
        found = []
        for contract in self.catalog:
            version = (contract.version, contract.implementation)
            offered = sorted(
                s.name for s in shapes if s.engines.get(contract.name, ())[:2] == version
            )
            fields = {**msgspec.to_builtins(contract), "offered_by": offered}
            found.append(msgspec.convert(fields, OfferedEngine))
        return found

    def fabric_status(self) -> FabricStatus:
        """Returns accounts and queue lengths, and what is wrong with the store, if something is."""
        return msgspec.structs.replace(
            fabric_status(self.state),
            trouble=self.health.text,
            unreadable_runs=self.unreadable_runs(),
        )
