"""The ablation of multi-objective scheduling: any worker with room, by lot."""

from random import Random

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.machine.state import State
from flowmesh_sim.policies.filling import CapacityTracker


class RandomPlacement:
    """Actions in order of readiness, each to a worker drawn evenly from those with room.

    Batching, reuse and elasticity stay: only the utility is taken away.
    """

    def __init__(self) -> None:
        """Begins its draws; equal simulations draw the same."""
        self._rng = Random(0)

    def decide(self, snapshot: Snapshot, model: CostModel, state: State) -> Decision:
        """Places all that fits anywhere."""
        filling = CapacityTracker(snapshot, model, state)
        for action in filling.due():
            found = [
                a
                for a in filling.accounts
                if filling.able(a, action) and filling.has_room(a, action)
            ]
            if found:
                filling.give(self._rng.choice(found), action)
        return filling.decision()
