"""The shipped scheduler."""

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.machine.state import State
from flowmesh_core.placement import decide


class Shipped:
    """The shipped scheduler: fair order; utility of throughput, cost and locality."""

    def decide(self, snapshot: Snapshot, model: CostModel, state: State) -> Decision:
        """As :func:`flowmesh_core.placement.decide`."""
        del state
        return decide(snapshot, model)
