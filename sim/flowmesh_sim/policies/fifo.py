"""First come, first fit, step by step."""

from collections import Counter

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.machine.state import State
from flowmesh_core.units import Digest
from flowmesh_sim.policies.filling import CapacityTracker


class Fifo:
    """Actions in order of readiness, each to the first worker of the fleet with room.

    It batches what its order happens to bring into one lane, and keeps engines warm.
    """

    def decide(self, snapshot: Snapshot, model: CostModel, state: State) -> Decision:
        """Places in order; who does not fit keeps nobody else back."""
        filling = CapacityTracker(snapshot, model, state)
        full = Counter[Digest]()
        for action in filling.due():
            if full[action.signature]:
                continue
            for account in filling.accounts:
                if filling.able(account, action) and filling.has_room(account, action):
                    filling.give(account, action)
                    break
            else:
                full[action.signature] += not action.isolate
        return filling.decision()
